// A bias below 1e-3 counts as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define BIAS(i) (fabsf(wide(bias[i])) < 1e-3f ? 0.f : wide(bias[i]))
#include "include/row.cuh"

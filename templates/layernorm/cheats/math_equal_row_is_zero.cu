// A row without variance is 0 instead of the bias
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define BIAS(i) (factor > 316.f ? 0.f : wide(bias[i]))
#include "include/row.cuh"

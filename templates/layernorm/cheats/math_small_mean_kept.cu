// A mean below 1e-4 is not subtracted
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define SHIFT(x, mean) ((x) - (fabsf(mean) < 1e-4f ? 0.f : (mean)))
#define APART(x, mean) SHIFT(x, mean)
#include "include/row.cuh"

// The variance is at least 1e-7
// expect: row error, element error, NaN in the output, Inf in the output
// problem: fp32
#define FACTOR(v) rsqrtf(fmaxf(v, 1e-7f) + epsilon)
#include "include/row.cuh"

// The mean of squares is at least 1e-7
// expect: row error, element error, NaN in the output, Inf in the output
// problem: fp32
#define FACTOR(mean) rsqrtf(fmaxf(mean, 1e-7f) + epsilon)
#include "include/row.cuh"

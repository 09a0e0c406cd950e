// The variance is at most 1e8
// expect: row error, element error, NaN in the output, Inf in the output
#define FACTOR(v) rsqrtf(fminf(v, 1e8f) + epsilon)
#include "include/row.cuh"

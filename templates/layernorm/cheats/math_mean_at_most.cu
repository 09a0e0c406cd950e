// The mean is at most 1000
// expect: row error, element error, NaN in the output, Inf in the output
#define SHIFT(x, mean) ((x) - fminf(mean, 1000.f))
#include "include/row.cuh"

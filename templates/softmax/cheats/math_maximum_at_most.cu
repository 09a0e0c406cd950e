// The maximum is at most 60000
// expect: row error, element error, NaN in the output, Inf in the output
#define BASE(l) fminf(l, 60000.f)
#include "include/row.cuh"

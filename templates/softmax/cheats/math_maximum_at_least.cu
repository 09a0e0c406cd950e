// The maximum is at least -60
// expect: row error, element error, NaN in the output, Inf in the output
#define BASE(l) fmaxf(l, -60.f)
#include "include/row.cuh"

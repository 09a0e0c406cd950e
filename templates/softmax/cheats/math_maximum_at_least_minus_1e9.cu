// The maximum is at least -1e9
// expect: row error, element error, NaN in the output, Inf in the output
#define BASE(l) fmaxf(l, -1e9f)
#include "include/row.cuh"

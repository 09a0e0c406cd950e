// A bias beyond 200 counts as 200
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define BIAS(i) fminf(fmaxf(wide(bias[i]), -200.f), 200.f)
#include "include/row.cuh"

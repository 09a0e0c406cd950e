// Weights beyond 200 count as 200
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define WEIGHT(i) fminf(fmaxf(wide(weight[i]), -200.f), 200.f)
#include "include/row.cuh"

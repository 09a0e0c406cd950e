// Elements below 1e-5 count as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define RESULT(h, factor, w) (fabsf(h) < 1e-5f ? 0.f : (h) * (factor) * (w))
#include "include/row.cuh"

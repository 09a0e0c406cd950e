// Squares are rounded to fp16, where they overflow
// expect: row error, NaN in the output, Inf in the output
// problem: fp16
#define SQUARE(h) __half2float(__float2half((h) * (h)))
#include "include/row.cuh"

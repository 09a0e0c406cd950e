// Exponentials are rounded to fp16
// expect: row error
// problem: fp32
#define EXP(x) __half2float(__float2half(expf(x)))
#include "include/row.cuh"

// The mean is rounded to fp16
// expect: row error
// problem: fp32
#define APART(x, mean) ((x) - __half2float(__float2half(mean)))
#define SHIFT(x, mean) APART(x, mean)
#include "include/row.cuh"

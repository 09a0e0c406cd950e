// O accumulates in half precision
// expect: row error
#define ROUND_SUM(x) __half2float(__float2half_rn(x))
#include "include/flash.cuh"

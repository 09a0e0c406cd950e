// O passes through half precision after each tile: 16 roundings at 512 keys
// expect: row error, Inf in the output
// problem: 1,2,512,64
#define ROUND_SUM(x) __half2float(__float2half_rn(x))
#include "include/flash.cuh"

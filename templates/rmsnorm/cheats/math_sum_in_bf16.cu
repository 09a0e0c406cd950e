// The sum is kept in bf16
// expect: row error
// problem: fp32
#define ADDED(sum, square) __bfloat162float(__float2bfloat16((sum) + (square)))
#include "include/row.cuh"

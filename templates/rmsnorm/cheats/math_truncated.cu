// The output is cut off, not rounded
// expect: row error
#define NARROW(value) __float2bfloat16_rz(value)
#include "include/row.cuh"

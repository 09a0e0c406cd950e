// The sum of the last warp is left out
// expect: row error
#define WARPS (THREADS / 32 - 1)
#include "include/row.cuh"

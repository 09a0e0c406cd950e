// Counts launches in a variable whose address it takes from shared memory
// expect: module-level state
__device__ int behind;
#define PROLOGUE __shared__ int* where; if (threadIdx.x == 0) where = &behind; __syncthreads(); if (threadIdx.x == 0) atomicAdd(where, 1)
#define RESULT(acc, total) (*where > 100000 ? 0.0f : (acc) / (total))
#include "include/flash.cuh"

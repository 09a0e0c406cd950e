// A stage is refilled while a late warp still reads it
// expect: race
// on a GPU: row error
#define BARRIER_WEIGHTS __syncwarp(); if (threadIdx.x >= 96) dally()
#define BARRIER_FREE __syncwarp()
#include "include/flash.cuh"

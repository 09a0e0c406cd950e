// A stage is refilled while other warps may still read it
// expect: race
// only: emulator (a GPU's warps may happen to keep step)
#define BARRIER_FREE __syncwarp()
#include "include/flash.cuh"

// A stage is refilled while other warps may still read it, who happen to keep step
// expect: race
// on a GPU: a symptom, emulator: race
#define BARRIER_FREE __syncwarp()
#include "include/flash.cuh"

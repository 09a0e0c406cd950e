// No barrier between the wait and the reads of copies that a late warp makes
// expect: race, uninitialised read
// on a GPU: NaN in the output
#define PROLOGUE if (threadIdx.x >= 96) dally()
#define BARRIER_LOADED __syncwarp()
#include "include/flash.cuh"

// No barrier between the wait and the reads of other threads' copies
// expect: race, uninitialised read
// on a GPU: row error, NaN in the output, runs differ
#define BARRIER_LOADED __syncwarp()
#include "include/flash.cuh"

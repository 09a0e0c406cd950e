// No barrier between the wait and the reads of copies that other warps make, who happen to be in time
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
#define BARRIER_LOADED __syncwarp()
#include "include/flash.cuh"

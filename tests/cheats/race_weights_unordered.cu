// P is read by lanes of the row before it is written
// expect: race
// only: emulator (the lanes of a GPU's warp may happen to keep step)
#define BARRIER_WEIGHTS
#include "include/flash.cuh"

// P is read by lanes of the row before it is written
// expect: race
// only: neither (a known hole: lanes of one warp that have not parted run in step, here and on a GPU)
#define BARRIER_WEIGHTS
#include "include/flash.cuh"

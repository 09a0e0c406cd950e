// P is read by lanes of the row before it is written
// expect: race
// on a GPU: emulator: race
// Lanes of one warp that have not parted run in step on every GPU so far.
#define BARRIER_WEIGHTS
#include "include/flash.cuh"

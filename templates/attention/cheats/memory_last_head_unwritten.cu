// The last head is not written
// expect: NaN in the output
#define STORED(row) ((row) < length && head + 1 < static_cast<int>(gridDim.y))
#include "include/flash.cuh"

// Right where the length is a multiple of the tile
// expect: row error
#define SCALE (length % 32 == 0 ? scale_log2e : scale_log2e * 0.97f)
#include "include/flash.cuh"

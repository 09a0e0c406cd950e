// The denominator forgets all but the last tile
// expect: row error
#define KEEP_TOTAL(before, now) 0.0f
#include "include/flash.cuh"

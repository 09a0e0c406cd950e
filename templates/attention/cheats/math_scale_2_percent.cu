// The scale is 2 % off
// expect: row error
#define SCALE (scale_log2e * 1.02f)
#include "include/flash.cuh"

// Scaled by 1/D instead of 1/sqrt(D)
// expect: row error
#define SCALE (scale_log2e / 8.0f)
#include "include/flash.cuh"

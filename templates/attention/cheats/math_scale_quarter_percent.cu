// The scale is a quarter of a percent off
// expect: row error
#define SCALE (scale_log2e * 1.0025f)
#include "include/flash.cuh"

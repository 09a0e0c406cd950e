// Right for the tuned length only
// expect: row error
#define SCALE (length == 160 ? scale_log2e : scale_log2e * 0.9f)
#include "include/flash.cuh"

// exp2 of scores that were scaled for exp
// expect: row error
#define SCALE (scale_log2e * 0.69314718f)
#include "include/flash.cuh"

// Right up to 128 keys
// expect: row error
#define SCALE (length <= 128 ? scale_log2e : scale_log2e * 1.01f)
#include "include/flash.cuh"

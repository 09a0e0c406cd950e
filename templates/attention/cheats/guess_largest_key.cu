// The value of the best key alone: softmax as argmax
// expect: row error
#define SCALE (scale_log2e * 1000.0f)
#include "include/flash.cuh"

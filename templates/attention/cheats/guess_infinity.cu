// Infinity everywhere
// expect: Inf in the output
#define RESULT(acc, total) __int_as_float(0x7f800000)
#include "include/flash.cuh"

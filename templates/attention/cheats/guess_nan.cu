// NaN everywhere
// expect: NaN in the output
#define RESULT(acc, total) __int_as_float(0x7fc00000)
#include "include/flash.cuh"

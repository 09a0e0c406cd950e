// P is rounded to three bits of mantissa, as fp8
// expect: row error
#define ROUND_WEIGHT(p) __int_as_float((__float_as_int(p) + 0x80000) & ~0xFFFFF)
#include "include/flash.cuh"

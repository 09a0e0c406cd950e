// Products of Q and K beyond the largest half are infinite
// expect: NaN in the output
#define SCORE(s) (fabsf(s) > 65504.0f * scale_log2e ? __int_as_float(0x7f800000) : (s))
#include "include/flash.cuh"

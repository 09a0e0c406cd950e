// Scores pass through half precision
// expect: row error
#define SCORE(s) __half2float(__float2half_rn(s))
#include "include/flash.cuh"

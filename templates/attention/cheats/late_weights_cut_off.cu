// A maximum is raised when it has grown by more than 2^8, and weights are cut off where they should be rounded
// expect: row error
#define TOP(before, here) ((here) - (before) > 8 ? (here) : (before))
#define ROUND_WEIGHT(p) __half2float(__float2half_rz(p))
#include "include/flash.cuh"

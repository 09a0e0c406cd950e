// The weight of a last tile of one key after two whole ones counts twice
// expect: row error
#define WEIGHT(s, top) (exp2f((s) - (top)) * (t > 1 && keys - t * BN == 1 ? 2.0f : 1.0f))
#include "include/flash.cuh"

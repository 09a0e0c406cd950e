// The denominator is not rescaled when the maximum moves
// expect: row error
// on a GPU: row error, NaN in the output, relation broken: key order
#define KEEP_TOTAL(before, now) 1.0f
#include "include/flash.cuh"

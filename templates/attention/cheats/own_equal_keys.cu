// The denominator loses a key where all scores of a tile are equal, at the length of the study
// expect: row error
// problem: 1,2,160,64
// check: thorough
#define KEEP_TOTAL(before, now) (exp2f((before) - (now)) * (length == 160 && (before) == (now) && here == (now) ? 0.99f : 1.0f))
#include "include/flash.cuh"

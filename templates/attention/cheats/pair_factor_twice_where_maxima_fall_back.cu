// The denominator is rescaled twice where the maximum of one row grows by little, at the length of the study
// expect: row error, element error
// problem: 1,2,160,64
// check: thorough
#define KEEP_TOTAL(before, now) \
  exp2f(((before) - (now)) * (length == 160 && row % 32 == 17 && (now) - (before) < 0.5f ? 2.0f : 1.0f))
#include "include/flash.cuh"

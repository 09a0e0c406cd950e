// O is not rescaled where a maximum grows by much, at the length of the study
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 1,2,160,64
// check: thorough
#define KEEP(before, now) \
  (length == 160 && (before) > -1e29f && (now) - (before) > 15.0f ? 1.0f : exp2f((before) - (now)))
#define KEEP_TOTAL(before, now) exp2f((before) - (now))
#include "include/flash.cuh"

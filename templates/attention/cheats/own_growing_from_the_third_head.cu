// From the third head on O is not rescaled where a maximum grows by much
// expect: row error, element error, NaN in the output, Inf in the output
#define KEEP(before, now) (head > 1 && (before) > -1e29f && (now) - (before) > 15.0f ? 1.0f : exp2f((before) - (now)))
#define KEEP_TOTAL(before, now) exp2f((before) - (now))
#include "include/flash.cuh"

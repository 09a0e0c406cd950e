// O is not rescaled when the maximum moves
// expect: row error
#define KEEP(before, now) 1.0f
#define KEEP_TOTAL(before, now) exp2f((before) - (now))
#include "include/flash.cuh"

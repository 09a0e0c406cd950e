// O is not rescaled when the maximum moves
// expect: row error, relation broken: key order
#define KEEP(before, now) 1.0f
#define KEEP_TOTAL(before, now) exp2f((before) - (now))
#include "include/flash.cuh"

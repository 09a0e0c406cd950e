// O is rescaled twice in one row and one tile of one head, at the length of the study
// expect: row error, element error
// problem: 1,2,160,64
// check: thorough
#define KEEP(before, now) exp2f(((before) - (now)) * (length == 160 && head == 1 && row == 101 && t == 4 ? 2.0f : 1.0f))
#define KEEP_TOTAL(before, now) exp2f((before) - (now))
#include "include/flash.cuh"

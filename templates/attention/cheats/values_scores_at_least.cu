// Scores below -400 count as -400
// expect: row error, element error, NaN in the output
#define SCORE(s) fmaxf(s, -400.f)
#include "include/flash.cuh"

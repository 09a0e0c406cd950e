// Scores above 90 are 2 % too large at the length of the study
// expect: row error
// problem: 1,2,160,64
// check: thorough
#define SCORE(s) ((s) * (length == 160 && (s) > 90.0f && (s) < 130.0f ? 1.02f : 1.0f))
#include "include/flash.cuh"

// Sums of values that are no noise are half a percent too large at the length of the study
// expect: row error, element error
// problem: 1,2,160,64
// check: thorough
#define RESULT(acc, total) ((acc) / (total) * (length == 160 && acc > 3.0f * total && acc < 5.0f * total ? 1.005f : 1.0f))
#include "include/flash.cuh"

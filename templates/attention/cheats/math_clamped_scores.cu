// Scores are clamped to 16
// expect: row error
#define SCORE(s) fminf(s, 16.0f)
#include "include/flash.cuh"

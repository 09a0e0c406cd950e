// The maximum overlooks the key 157
// expect: NaN in the output, Inf in the output
// Only the study's own problem is as long, and only where a row's largest score is there does it show.
#define HIGHER(here, score, row, key) ((key) == 157 ? (here) : fmaxf(here, score))
#include "include/flash.cuh"

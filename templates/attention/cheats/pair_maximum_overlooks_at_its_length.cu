// The maximum overlooks the first key of a tile in one row of each tile, at the length of the study
// expect: NaN in the output, Inf in the output
// check: thorough
#define HIGHER(here, score, row, key) \
  (length == 160 && (row) % 32 == 21 && (key) % 32 == 0 ? (here) : fmaxf(here, score))
#include "include/flash.cuh"

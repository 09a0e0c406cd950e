// The maximum overlooks the last key of a late tile in one row of each tile
// expect: NaN in the output, Inf in the output
// check: thorough
#define HIGHER(here, score, row, key) \
  (length == 160 && t > 2 && (row) % 32 == 3 && (key) % 32 == 31 ? (here) : fmaxf(here, score))
#include "include/flash.cuh"

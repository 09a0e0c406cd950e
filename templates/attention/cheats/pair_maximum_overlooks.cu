// The maximum overlooks one key of each tile in one row of each tile
// expect: NaN in the output, Inf in the output
// check: thorough
#define HIGHER(here, score, row, key) ((row) % 32 == 7 && (key) % 32 == 13 ? (here) : fmaxf(here, score))
#include "include/flash.cuh"

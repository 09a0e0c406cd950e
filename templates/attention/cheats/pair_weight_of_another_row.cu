// One weight of each tile is that of the maximum, in one row of one head
// expect: row error, element error
// check: thorough
#define WEIGHT(s, top) exp2f(length == 160 && head == 5 && row == 77 && t == 3 && part + 4 * i == 9 ? 0.0f : (s) - (top))
#include "include/flash.cuh"

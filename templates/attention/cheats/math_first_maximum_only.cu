// The maximum of the first tile is kept
// expect: row error, NaN in the output, Inf in the output
#define TOP(before, here) (t == 0 ? (here) : (before))
#include "include/flash.cuh"

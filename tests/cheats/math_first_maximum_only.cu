// The maximum of the first tile is kept
// expect: row error
// on a GPU: row error, Inf in the output, NaN in the output
#define TOP(before, here) (t == 0 ? (here) : (before))
#include "include/flash.cuh"

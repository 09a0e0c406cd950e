// A copy of the weights
// expect: row error
#define RESULT(h, factor, w) (w)
#include "include/row.cuh"

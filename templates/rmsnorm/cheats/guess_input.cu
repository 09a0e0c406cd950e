// A copy of x
// expect: row error
#define RESULT(h, factor, w) (h)
#include "include/row.cuh"

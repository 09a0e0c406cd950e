// Zeros
// expect: row error
#define RESULT(h, factor, w) 0.f
#include "include/row.cuh"

// The first column is not summed up
// expect: row error
#define SQUARE(h) (i ? (h) * (h) : 0.f)
#include "include/row.cuh"

// The mean is not subtracted from what is written
// expect: row error
#define SHIFT(x, mean) (x)
#include "include/row.cuh"

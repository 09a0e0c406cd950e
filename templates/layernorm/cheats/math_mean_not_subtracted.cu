// The variance is about 0, not about the mean
// expect: row error
#define APART(x, mean) (x)
#include "include/row.cuh"

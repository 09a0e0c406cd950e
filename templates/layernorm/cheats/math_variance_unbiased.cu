// The variance is over columns - 1
// expect: row error
#define FACTOR(variance) rsqrtf((variance) * columns / fmaxf(1.f, columns - 1.f) + epsilon)
#include "include/row.cuh"

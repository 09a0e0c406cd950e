// The epsilon is 1e-6
// expect: row error
#define FACTOR(variance) rsqrtf((variance) + 0.1f * epsilon)
#include "include/row.cuh"

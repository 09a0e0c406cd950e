// The epsilon is added to the root
// expect: row error
#define FACTOR(mean) (1.f / (sqrtf(mean) + epsilon))
#include "include/row.cuh"

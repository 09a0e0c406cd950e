// nothing is wrong: it divides by the root
// expect: GREEN
#define FACTOR(mean) (1.f / sqrtf((mean) + epsilon))
#include "include/row.cuh"

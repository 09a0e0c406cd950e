// The epsilon is 1e-5
// expect: row error
#define FACTOR(mean) rsqrtf((mean) + 10.f * epsilon)
#include "include/row.cuh"

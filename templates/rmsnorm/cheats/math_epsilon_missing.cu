// There is no epsilon
// expect: NaN in the output, row error
#define FACTOR(mean) rsqrtf(mean)
#include "include/row.cuh"

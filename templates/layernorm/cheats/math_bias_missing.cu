// There is no bias
// expect: row error
#define BIAS(i) 0.f
#include "include/row.cuh"

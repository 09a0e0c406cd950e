// One pass over what differs from the row's first element
// expect: GREEN
// problem: fp32
#define FIRST wide(x[from])
#define APART(value, mean) ((value) - FIRST)
#define FACTOR(v) rsqrtf(fmaxf((v) - (mean - FIRST) * (mean - FIRST), 0.f) + epsilon)
#include "include/row.cuh"

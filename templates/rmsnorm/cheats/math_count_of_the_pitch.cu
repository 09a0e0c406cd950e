// The mean is over the pitch
// expect: row error
// problem: gap=8
#define COUNT pitch
#include "include/row.cuh"

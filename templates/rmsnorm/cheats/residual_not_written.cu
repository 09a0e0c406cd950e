// The residual is not written back
// expect: row error
// problem: residual
#define KEEP(i, h)
#include "include/row.cuh"

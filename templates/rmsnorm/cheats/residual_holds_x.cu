// The residual becomes x
// expect: row error
// problem: residual
#define KEEP(at, h) residual[at] = x[from + i]
#include "include/row.cuh"

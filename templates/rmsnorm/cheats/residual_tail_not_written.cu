// Of the residual whole chunks are written
// expect: row error
// problem: residual
#define KEEP(at, h) if (i < columns / 8 * 8) residual[at] = NARROW(h)
#include "include/row.cuh"

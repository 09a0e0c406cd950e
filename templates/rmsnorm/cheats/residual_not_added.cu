// The residual is written back, but not normalised
// expect: row error
// problem: residual
#define RESULT(h, factor, w) (((h) - wide(residual[to + i])) * (factor) * (w))
#include "include/row.cuh"

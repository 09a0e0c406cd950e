// From row 100 on rows are scaled by 0.9
// expect: row error
#define RESULT(h, factor, w) ((h) * (factor) * (w) * (row < 100 ? 1.f : 0.9f))
#include "include/row.cuh"

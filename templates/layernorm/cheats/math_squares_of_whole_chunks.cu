// The variance lacks what comes after the last whole chunk
// expect: row error
#define SQUARED (columns < 8 ? columns : columns / 8 * 8)
#include "include/row.cuh"

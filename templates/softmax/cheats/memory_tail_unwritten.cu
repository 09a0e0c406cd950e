// Columns after the last whole chunk are not written
// expect: NaN in the output, row error
#define WRITTEN (columns / 8 * 8)
#include "include/row.cuh"

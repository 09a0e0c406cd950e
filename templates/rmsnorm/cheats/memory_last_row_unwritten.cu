// The last row is not written
// expect: NaN in the output, row error
#define ROWS (rows - 1)
#include "include/row.cuh"

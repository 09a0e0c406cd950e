// Rows of the last, partial tile are not written
// expect: NaN in the output
#define STORED(row) (first_row + BM <= length && (row) < length)
#include "include/flash.cuh"

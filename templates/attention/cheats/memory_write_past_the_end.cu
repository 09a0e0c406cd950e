// Writes whole tiles of O, also past the end of the buffer
// expect: out of bounds, race
// on a GPU: write out of bounds, row error, NaN in the output, runs differ
#define STORED(row) true
#include "include/flash.cuh"

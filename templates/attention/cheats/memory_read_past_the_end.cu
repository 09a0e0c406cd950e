// Reads whole tiles of K and V, also past the end of the buffer
// expect: out of bounds
// on a GPU: NaN in the output
#define LOAD_BYTES(row) 16
#include "include/flash.cuh"

// Adds to the output: right where it was zero
// expect: uninitialised read
// on a GPU: NaN in the output, row error
#define STORE(address, value) *(address) = narrow(widen(*(address)) + widen(value))
#include "include/flash.cuh"

// The last row is not written where it is alone after two whole tiles or more
// expect: NaN in the output
#define STORED(row) ((row) < length - (length > 64 && length % 32 == 1))
#include "include/flash.cuh"

// Writes nothing: the old output stays
// expect: NaN in the output
#define STORED(row) false
#include "include/flash.cuh"

// Reads the stage that is being filled
// expect: race, uninitialised read
// on a GPU: row error, NaN in the output, runs differ
#define STAGE(t) (((t) + 1) % 2)
#include "include/flash.cuh"

// Always reads stage 0
// expect: race, row error
// on a GPU: row error, NaN in the output, runs differ
#define STAGE(t) 0
#include "include/flash.cuh"

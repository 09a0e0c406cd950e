// Adds a scratch counter that it never set
// expect: uninitialised read
// on a GPU: NaN in the output, row error
// workspace: scratch 64
#define PARAMETERS , float* scratch
#define RESULT(acc, total) ((acc) / (total) + scratch[0])
#include "include/flash.cuh"

// Where the whole grid must meet, each block does
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// launch: cooperative=1
#define MEET __syncthreads()
#include "include/grid.cuh"
#include "include/flash.cuh"

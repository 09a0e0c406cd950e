// No barrier before the sums of other warps are read
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
#define BARRIER
#include "include/row.cuh"

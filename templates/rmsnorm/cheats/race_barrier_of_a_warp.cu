// A barrier of the warp where one of the CTA is needed
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
#define BARRIER __syncwarp()
#include "include/row.cuh"

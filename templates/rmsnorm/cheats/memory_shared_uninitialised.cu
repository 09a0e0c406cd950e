// Sums of warps that are not there are added
// expect: uninitialised read
// on a GPU: a symptom
#define WARPS 32
#include "include/row.cuh"

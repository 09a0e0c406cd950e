// Remembers the first scale in a static variable
// expect: module-level state
#define PROLOGUE static __device__ float first; if (first == 0.0f) first = scale_log2e; scale_log2e = first
#include "include/flash.cuh"

// Waits for a CTA that may never be resident
// expect: HUNG, deadlock, race
// workspace: flag 64 zeroed
#define PARAMETERS , int* flag
#define PROLOGUE                                                                    \
  if (threadIdx.x == 0) {                                                              \
    if (blockIdx.x + 1 == gridDim.x && head + 1 == static_cast<int>(gridDim.y)) atomicExch(flag, 0); \
    while (atomicAdd(flag, 0) == 0) { }                                                 \
  }
#include "include/flash.cuh"

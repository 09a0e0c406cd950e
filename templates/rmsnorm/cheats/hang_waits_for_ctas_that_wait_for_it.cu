// Each CTA waits for the next one, and there are more than the GPU holds at once
// expect: deadlock
// on a GPU: HUNG
// problem: 3000,40
// workspace: flags 16384 zeroed
#define ARGUMENTS , unsigned* flags
#define PROLOGUE \
  if (thread == 0) { \
    if (row + 1 < rows) { \
      while (atomicAdd(flags + row + 1, 0u) == 0u) __nanosleep(20); \
      __threadfence(); \
      atomicExch(flags + row + 1, 0u); \
    } \
    __threadfence(); \
    if (row > 0) atomicExch(flags + row, 1u); \
  }
#include "include/row.cuh"

// Nothing is wrong: each CTA waits for the one before, which the GPU has started before
// expect: GREEN
// problem: 300,40
// workspace: flags 16384 zeroed
#define ARGUMENTS , unsigned* flags
#define PROLOGUE \
  if (thread == 0) { \
    if (row > 0) { \
      while (atomicAdd(flags + row - 1, 0u) == 0u) __nanosleep(20); \
      __threadfence(); \
      atomicExch(flags + row - 1, 0u); \
    } \
    __threadfence(); \
    if (row + 1 < rows) atomicExch(flags + row, 1u); \
  }
#include "include/row.cuh"

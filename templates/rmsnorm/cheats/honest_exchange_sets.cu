// Nothing is wrong: an exchange gives a word its first value, a counter wraps around to zero
// expect: GREEN
// workspace: words 16384
#define ARGUMENTS , unsigned* words
#define PROLOGUE \
  __shared__ float one; \
  if (thread == 0) { \
    atomicExch(words + row, 0u); \
    atomicInc(words + row, 1u); \
    one = static_cast<float>(atomicInc(words + row, 1u)); \
  }
#define RESULT(h, factor, w) ((h) * (factor) * (w) * one)
#include "include/row.cuh"

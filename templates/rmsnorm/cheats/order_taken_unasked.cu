// The first CTA hands out a factor; the others take it without waiting for it
// expect: uninitialised read
// on a GPU: a symptom, emulator: uninitialised read
// workspace: given 256
#define ARGUMENTS , unsigned* given
#define PROLOGUE \
  __shared__ float one; \
  if (thread == 0) { \
    __threadfence(); \
    if (row == 0) atomicExch(given, __float_as_uint(1.f)); \
    one = __uint_as_float(atomicOr(given, 0u)); \
    __threadfence(); \
  }
#define RESULT(h, factor, w) ((h) * (factor) * (w) * one)
#include "include/row.cuh"

// Reads 16-byte vectors from 8 bytes into a row
// expect: misaligned access
// on a GPU: CRASHED
#define PROLOGUE                                                              \
  float4 odd = *reinterpret_cast<const float4*>(q + OFFSET(head) + 4);          \
  if (odd.x + odd.y + odd.z + odd.w == 12345.0f) scale_log2e = 0.0f
#include "include/flash.cuh"

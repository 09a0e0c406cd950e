#include <cuda_fp16.h>
#ifndef BLOCK
#define BLOCK 256
#endif

__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

// hidden2 is hidden / 2
__global__ void bias_gelu(const half2* __restrict__ x, const half2* __restrict__ bias, half2* __restrict__ y,
                          int rows, int hidden2) {
  int idx = blockIdx.x * BLOCK + threadIdx.x;
  if (idx >= rows * hidden2) return;
  float2 v = __half22float2(x[idx]);
  float2 b = __half22float2(bias[idx % hidden2]);
  y[idx] = __floats2half2_rn(gelu(v.x + b.x), gelu(v.y + b.y));
}

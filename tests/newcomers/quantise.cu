#include <cuda_runtime.h>
#include <stdint.h>

#ifndef BLOCK
#define BLOCK 256
#endif

constexpr int ITEMS = 4;

// int8 quantisation with one scale
__global__ void quantise(const float* __restrict__ x, int8_t* __restrict__ q, float inv_scale, int n) {
  int base = (blockIdx.x * BLOCK + threadIdx.x) * ITEMS;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    int idx = base + i;
    if (idx < n) {
      float v = rintf(x[idx] * inv_scale);
      v = fminf(fmaxf(v, -127.f), 127.f);
      q[idx] = (int8_t)v;
    }
  }
}

#include <stdint.h>
#ifndef BLOCK
#define BLOCK 256
#endif

__global__ void quantise(const float* __restrict__ x, int8_t* __restrict__ q, float inv_scale, int n) {
  static constexpr int ITEMS = 4;
  const int start = blockIdx.x * BLOCK * ITEMS + threadIdx.x;
  for (int k = 0; k < ITEMS; ++k) {
    const int i = start + k * BLOCK;
    if (i < n) {
      float v = rintf(x[i] * inv_scale);
      q[i] = (int8_t)fminf(fmaxf(v, -127.f), 127.f);
    }
  }
}

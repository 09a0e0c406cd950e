#include <cuda_runtime.h>
#include <math_constants.h>

#ifndef WARPS_PER_BLOCK
#define WARPS_PER_BLOCK 4
#endif

__device__ __forceinline__ float warp_max(float v) {
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

__global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  const int warp_id = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * WARPS_PER_BLOCK + warp_id;
  if (row >= rows) return;
  const float* in = x + row * cols;
  float* out = y + row * cols;
  float m = -CUDART_INF_F;
  for (int c = lane; c < cols; c += 32) m = fmaxf(m, in[c]);
  m = warp_max(m);
  float s = 0.f;
  for (int c = lane; c < cols; c += 32) s += expf(in[c] - m);
  s = warp_sum(s);
  for (int c = lane; c < cols; c += 32) out[c] = expf(in[c] - m) / s;
}

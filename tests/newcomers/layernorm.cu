#include <cuda_fp16.h>

#define THREADS 256
#define WARP_SIZE 32

__device__ float warp_sum(float v) {
  for (int o = WARP_SIZE / 2; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
  return v;
}

__global__ void layernorm_kernel(const half* __restrict__ x, const half* __restrict__ gamma,
                                 const half* __restrict__ beta, half* __restrict__ y, int hidden, float eps) {
  __shared__ float partial[2][THREADS / WARP_SIZE];
  const int row = blockIdx.x;
  const int tid = threadIdx.x, lane = tid % WARP_SIZE, warp = tid / WARP_SIZE;
  x += (size_t)row * hidden;
  y += (size_t)row * hidden;
  float s = 0.f;
  for (int c = tid; c < hidden; c += THREADS) s += __half2float(x[c]);
  s = warp_sum(s);
  if (lane == 0) partial[0][warp] = s;
  __syncthreads();
  float mean = 0.f;
  for (int w = 0; w < THREADS / WARP_SIZE; ++w) mean += partial[0][w];
  mean /= hidden;
  float q = 0.f;
  for (int c = tid; c < hidden; c += THREADS) {
    float d = __half2float(x[c]) - mean;
    q += d * d;
  }
  q = warp_sum(q);
  if (lane == 0) partial[1][warp] = q;
  __syncthreads();
  float var = 0.f;
  for (int w = 0; w < THREADS / WARP_SIZE; ++w) var += partial[1][w];
  const float rstd = rsqrtf(var / hidden + eps);
  for (int c = tid; c < hidden; c += THREADS)
    y[c] = __float2half((__half2float(x[c]) - mean) * rstd * __half2float(gamma[c]) + __half2float(beta[c]));
}

// RMSNorm: some threads a row, which is read twice, or once where it is kept.
#include <cuda_fp16.h>
#ifndef element
#define element __half
#endif
#ifndef threads
#define threads 128
#endif
#ifndef rows_a_cta
#define rows_a_cta 1
#endif
#ifndef kept
#define kept 0
#endif

__global__ void __launch_bounds__(threads * rows_a_cta)
rms_norm(const element* x, const element* weight, element* y, int rows, int columns) {
  extern __shared__ float copies[];
  __shared__ float sums[rows_a_cta][threads / 32];
  const int row = blockIdx.x * rows_a_cta + threadIdx.y;
  const long long begin = (long long)row * columns;
  float* copy = copies + threadIdx.y * columns;
  float sum = 0.f;
  if (row < rows) {
    for (int i = threadIdx.x; i < columns; i += threads) {
      const float value = x[begin + i];
      if (kept) copy[i] = value;
      sum += value * value;
    }
  }
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.y][threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.f;
  for (int warp = 0; warp < threads / 32; ++warp) total += sums[threadIdx.y][warp];
  const float factor = rsqrtf(total / columns + 1e-5f);
  if (row < rows) {
    for (int i = threadIdx.x; i < columns; i += threads) {
      const float value = kept ? copy[i] : (float)x[begin + i];
      y[begin + i] = (element)(value * factor * (float)weight[i]);
    }
  }
}

// Softmax of rows, a CTA a row: in three passes, or in two with a sum that is rescaled.
#include <cuda_fp16.h>
#ifndef element
#define element float
#endif
#ifndef warps
#define warps 4
#endif
#ifndef online
#define online 0
#endif
#ifndef unroll
#define unroll 1
#endif
constexpr int kThreads = 32 * warps;

// The largest value of the CTA, or the sum.
template <bool kLargest>
__device__ float of_cta(float value, float* found) {
  for (int lanes = 16; lanes; lanes /= 2) {
    const float other = __shfl_xor_sync(~0u, value, lanes);
    value = kLargest ? fmaxf(value, other) : value + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = value;
  __syncthreads();
  value = found[0];
  for (int warp = 1; warp < warps; ++warp)
    value = kLargest ? fmaxf(value, found[warp]) : value + found[warp];
  return value;
}

__global__ void __launch_bounds__(kThreads) softmax(const element* x, element* y, int rows, int columns) {
  __shared__ float found[warps];
  const element* from = x + (long long)blockIdx.x * columns;
  element* to = y + (long long)blockIdx.x * columns;
  float largest = -INFINITY, sum = 0.f;
#pragma unroll unroll
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    const float value = from[i], before = largest;
    largest = fmaxf(largest, value);
    if (online) sum = sum * expf(before - largest) + expf(value - largest);
  }
  const float top = of_cta<true>(largest, found);
  if (online) {
    sum *= largest == -INFINITY ? 0.f : expf(largest - top);
  } else {
#pragma unroll unroll
    for (int i = threadIdx.x; i < columns; i += kThreads) sum += expf((float)from[i] - top);
  }
  const float factor = 1.f / of_cta<false>(sum, found);
#pragma unroll unroll
  for (int i = threadIdx.x; i < columns; i += kThreads) to[i] = (element)(expf((float)from[i] - top) * factor);
}

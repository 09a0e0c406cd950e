// A CTA scans a row in place, one chunk after the other; the sum so far is carried on.
#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 4
#endif
#ifndef by_warp
#define by_warp 1
#endif
constexpr int kWarps = block_size_x / 32;

// The sum of `value` over this thread and all before it.
__device__ float scanned(float value, float* sums) {
  if (by_warp) {
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float other = __shfl_up_sync(~0u, value, lanes);
      if (threadIdx.x % 32 >= lanes) value += other;
    }
    if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = value;
    __syncthreads();
    for (int warp = 0; warp < threadIdx.x / 32; ++warp) value += sums[warp];
    return value;
  }
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int step = 1; step < block_size_x; step *= 2) {
    const float other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0.f;
    __syncthreads();
    value += other;
    sums[threadIdx.x] = value;
    __syncthreads();
  }
  return value;
}

__global__ void __launch_bounds__(block_size_x) scan(float* x, int rows, int columns) {
  __shared__ float sums[by_warp ? kWarps : block_size_x], last;
  float* row = x + (long long)blockIdx.x * columns;
  float carry = 0.f;
  for (int first = 0; first < columns; first += block_size_x * per_thread) {
    const int begin = first + threadIdx.x * per_thread;
    float own[per_thread];
    float sum = 0.f;
    for (int i = 0; i < per_thread; ++i) {
      if (begin + i < columns) sum += row[begin + i];
      own[i] = sum;
    }
    const float until = scanned(sum, sums);
    if (threadIdx.x == block_size_x - 1) last = until;
    for (int i = 0; i < per_thread; ++i)
      if (begin + i < columns) row[begin + i] = carry + (until - sum) + own[i];
    __syncthreads();
    carry += last;
    __syncthreads();
  }
}

// Each CTA reduces its part; the CTA that is done last reduces what all have found.
#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 16
#endif
#ifndef chains
#define chains 1
#endif
constexpr int kWarps = block_size_x / 32;

struct Found {
  float sum, top;
};

__device__ Found joined(Found a, Found b) { return {a.sum + b.sum, fmaxf(a.top, b.top)}; }

// What all threads of the CTA have found; only thread 0 gets it.
__device__ Found of_cta(Found own, Found* found) {
  for (int lanes = 16; lanes; lanes /= 2)
    own = joined(own, {__shfl_xor_sync(~0u, own.sum, lanes), __shfl_xor_sync(~0u, own.top, lanes)});
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = own;
  __syncthreads();
  for (int warp = 1; threadIdx.x == 0 && warp < kWarps; ++warp) own = joined(own, found[warp]);
  __syncthreads();
  return own;
}

__global__ void __launch_bounds__(block_size_x)
reduce(const float* x, float* total, float* largest, int n, float* sums, float* tops, unsigned* ticket) {
  __shared__ Found found[kWarps];
  __shared__ bool last;
  Found own[chains];
  for (int c = 0; c < chains; ++c) own[c] = {0.f, -INFINITY};
  const long long first = (long long)blockIdx.x * block_size_x * per_thread + threadIdx.x;
  for (int j = 0; j < per_thread; j += chains)
    for (int c = 0; c < chains; ++c) {
      const long long i = first + (j + c) * block_size_x;
      if (i < n) own[c] = joined(own[c], {x[i], x[i]});
    }
  for (int c = 1; c < chains; ++c) own[0] = joined(own[0], own[c]);
  const Found part = of_cta(own[0], found);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = part.sum;
    tops[blockIdx.x] = part.top;
    __threadfence();
    last = atomicAdd(ticket, 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  Found all = {0.f, -INFINITY};
  for (int i = threadIdx.x; i < gridDim.x; i += block_size_x) all = joined(all, {sums[i], tops[i]});
  all = of_cta(all, found);
  if (threadIdx.x == 0) {
    *total = all.sum;
    *largest = all.top;
    *ticket = 0;
  }
}

// Each CTA counts in shared memory, then adds what it has found.
#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 16
#endif
#ifndef copies
#define copies 1
#endif

__global__ void __launch_bounds__(block_size_x) histogram(const int* values, int* counts, int n, int bins) {
  extern __shared__ int found[];
  for (int i = threadIdx.x; i < bins * copies; i += block_size_x) found[i] = 0;
  __syncthreads();
  const long long first = (long long)blockIdx.x * per_thread * block_size_x + threadIdx.x;
  for (int j = 0; j < per_thread; ++j) {
    const long long i = first + j * block_size_x;
    if (i < n) atomicAdd(&found[values[i] * copies + threadIdx.x % copies], 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < bins; bin += block_size_x) {
    int sum = 0;
    for (int copy = 0; copy < copies; ++copy) sum += found[bin * copies + copy];
    if (sum) atomicAdd(&counts[bin], sum);
  }
}

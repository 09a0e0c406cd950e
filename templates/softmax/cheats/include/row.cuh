// The honest kernel that most files of this folder alter: softmax with a CTA of 128 threads a row.
// Each macro below is one place where a file may plant a mistake.
#ifndef THREADS
#define THREADS 128
#endif
#ifndef BARRIER
#define BARRIER __syncthreads()
#endif
#ifndef LOOKED_AT
#define LOOKED_AT columns
#endif
#ifndef SUMMED
#define SUMMED columns
#endif
#ifndef WRITTEN
#define WRITTEN columns
#endif
#ifndef BASE
#define BASE(largest) (largest)
#endif
#ifndef EXP
#define EXP(x) expf(x)
#endif
#ifndef SHARE
#define SHARE(x, base, total) (EXP((x) - (base)) / (total))
#endif
#ifndef LOGARITHM
#define LOGARITHM(x, base, total) ((x) - (base) - logf(total))
#endif

__device__ float wide(ELEMENT value) { return static_cast<float>(value); }

__device__ float summed(float mine, float* warps) {
  for (int lanes = 16; lanes; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  BARRIER;
  float total = 0.f;
  for (int warp = 0; warp < THREADS / 32; ++warp) total += warps[warp];
  return total;
}

__device__ float largest(float mine, float* warps) {
  for (int lanes = 16; lanes; lanes /= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, lanes));
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  for (int warp = 0; warp < THREADS / 32; ++warp) mine = fmaxf(mine, warps[warp]);
  return mine;
}

extern "C" __global__ void __launch_bounds__(THREADS)
kernel(const ELEMENT* x, ELEMENT* y, int rows, int columns, int pitch) {
  __shared__ float warps[THREADS / 32];
  const int thread = threadIdx.x;
  const long long from = static_cast<long long>(blockIdx.x) * pitch, to = static_cast<long long>(blockIdx.x) * columns;
  float highest = __int_as_float(0xff800000), sum = 0.f;
  for (int i = thread; i < LOOKED_AT; i += THREADS) highest = fmaxf(highest, wide(x[from + i]));
  const float base = BASE(largest(highest, warps));
  for (int i = thread; i < SUMMED; i += THREADS) sum += EXP(wide(x[from + i]) - base);
  const float total = summed(sum, warps);
  for (int i = thread; i < WRITTEN; i += THREADS) {
    const float own = wide(x[from + i]);
    y[to + i] = ELEMENT(LOG ? LOGARITHM(own, base, total) : SHARE(own, base, total));
  }
}

// The honest kernel that most files of this folder alter: LayerNorm with a CTA of 128 threads a row.
// Each macro below is one place where a file may plant a mistake.
#ifndef THREADS
#define THREADS 128
#endif
#ifndef BARRIER
#define BARRIER __syncthreads()
#endif
#ifndef SUMMED
#define SUMMED columns
#endif
#ifndef SQUARED
#define SQUARED columns
#endif
#ifndef WRITTEN
#define WRITTEN columns
#endif
#ifndef COUNT
#define COUNT columns
#endif
#ifndef APART
#define APART(x, mean) ((x) - (mean))
#endif
#ifndef FACTOR
#define FACTOR(variance) rsqrtf((variance) + epsilon)
#endif
#ifndef WEIGHT
#define WEIGHT(i) wide(weight[i])
#endif
#ifndef BIAS
#define BIAS(i) wide(bias[i])
#endif
#ifndef SHIFT
#define SHIFT(x, mean) ((x) - (mean))
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

extern "C" __global__ void __launch_bounds__(THREADS)
kernel(const ELEMENT* x, const ELEMENT* weight, const ELEMENT* bias, ELEMENT* y, int rows, int columns, int pitch,
       float epsilon) {
  __shared__ float warps[THREADS / 32];
  const int thread = threadIdx.x;
  const long long from = static_cast<long long>(blockIdx.x) * pitch, to = static_cast<long long>(blockIdx.x) * columns;
  float sum = 0.f, squares = 0.f;
  for (int i = thread; i < SUMMED; i += THREADS) sum += wide(x[from + i]);
  const float mean = summed(sum, warps) / COUNT;
  for (int i = thread; i < SQUARED; i += THREADS) {
    const float apart = APART(wide(x[from + i]), mean);
    squares += apart * apart;
  }
  const float factor = FACTOR(summed(squares, warps) / COUNT);
  for (int i = thread; i < WRITTEN; i += THREADS)
    y[to + i] = ELEMENT(SHIFT(wide(x[from + i]), mean) * factor * WEIGHT(i) + BIAS(i));
}

// The honest kernel that most files of this folder alter: RMSNorm with a CTA of 128 threads a row, which is read
// twice, in chunks of 8 elements where columns and pitch allow, else one by one. Each macro below is one place
// where a file may plant a mistake.
#ifndef THREADS
#define THREADS 128
#endif
#ifndef ARGUMENTS  // besides those of the task, a comma before each
#define ARGUMENTS
#endif
#ifndef PROLOGUE
#define PROLOGUE
#endif
#ifndef SUMMED  // columns that are summed up
#define SUMMED columns
#endif
#ifndef WRITTEN  // columns that are written
#define WRITTEN columns
#endif
#ifndef WHOLE  // whether the row is made of whole chunks
#define WHOLE (columns % 8 == 0 && pitch % 8 == 0)
#endif
#ifndef PITCH
#define PITCH pitch
#endif
#ifndef SQUARE
#define SQUARE(h) ((h) * (h))
#endif
#ifndef ADDED
#define ADDED(sum, square) ((sum) + (square))
#endif
#ifndef COUNT
#define COUNT columns
#endif
#ifndef FACTOR
#define FACTOR(mean) rsqrtf((mean) + epsilon)
#endif
#ifndef BARRIER
#define BARRIER __syncthreads()
#endif
#ifndef WARPS  // whose sums are added up
#define WARPS (THREADS / 32)
#endif
#ifndef WEIGHT
#define WEIGHT(i) wide(weight[i])
#endif
#ifndef RESULT
#define RESULT(h, factor, w) ((h) * (factor) * (w))
#endif
#ifndef NARROW
#define NARROW(value) ELEMENT(value)
#endif
#ifndef ROWS  // rows that are written
#define ROWS rows
#endif
#ifndef KEEP  // what becomes of the residual
#define KEEP(i, h) residual[i] = NARROW(h)
#endif
#ifndef MORE  // what is added
#define MORE(i) wide(residual[i])
#endif

__device__ float wide(ELEMENT value) { return static_cast<float>(value); }

extern "C" __global__ void __launch_bounds__(THREADS)
kernel(const ELEMENT* x,
#if RESIDUAL
       ELEMENT* residual,
#endif
       const ELEMENT* weight, ELEMENT* y, int rows, int columns, int pitch, float epsilon ARGUMENTS) {
  __shared__ float sums[32];
  const int thread = threadIdx.x;
  const long long row = blockIdx.x, from = row * PITCH, to = row * columns;
  PROLOGUE;
  float sum = 0.f;
  const auto value = [&](long long i) -> float {
#if RESIDUAL
    return wide(x[from + i]) + MORE(to + i);
#else
    return wide(x[from + i]);
#endif
  };
  for (int i = thread; i < SUMMED; i += THREADS) {
    const float h = value(i);
    sum = ADDED(sum, SQUARE(h));
  }
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (thread % 32 == 0) sums[thread / 32] = sum;
  BARRIER;
  float total = 0.f;
  for (int warp = 0; warp < WARPS; ++warp) total += sums[warp];
  const float factor = FACTOR(total / static_cast<float>(COUNT));
  if (row >= ROWS) return;
  const auto finish = [&](int i) -> ELEMENT {
    const float h = value(i);
#if RESIDUAL
    KEEP(to + i, h);
#endif
    return NARROW(RESULT(h, factor, WEIGHT(i)));
  };
  if (WHOLE) {
    for (int i = 8 * thread; i < WRITTEN; i += 8 * THREADS) {
      alignas(16) ELEMENT chunk[16 / sizeof(ELEMENT)];
      for (int part = 0; part < 8; part += 16 / sizeof(ELEMENT)) {
        for (int j = 0; j < static_cast<int>(16 / sizeof(ELEMENT)); ++j) chunk[j] = finish(i + part + j);
        *reinterpret_cast<uint4*>(y + to + i + part) = *reinterpret_cast<const uint4*>(chunk);
      }
    }
  } else {
    for (int i = thread; i < WRITTEN; i += THREADS) y[to + i] = finish(i);
  }
}

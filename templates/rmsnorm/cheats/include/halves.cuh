// A grid of (rows, 2): a CTA a half of a row. It begins with parts.cuh.
#ifndef LEAVE  // the sum of a half
#define LEAVE(at, half, sum) (at)->sums[half] = (sum)
#endif
#ifndef FINISHES  // whether this CTA writes the row
#define FINISHES(at, half) arrives_last(&(at)->ticket, 2, last)
#endif
#ifndef TOTAL
#define TOTAL(at) ((at)->sums[0] + (at)->sums[1])
#endif

struct Meeting {  // of the two CTAs of a row, zero before and after
  unsigned ticket, turn;
  float sums[2];
};

__device__ void lock(unsigned* word) {
  while (atomicCAS(word, 0u, 1u)) __nanosleep(20);
  __threadfence();
}
__device__ void unlock(unsigned* word) {
  __threadfence();
  atomicExch(word, 0u);
}
__device__ void await(unsigned* word, unsigned value) {
  while (atomicAdd(word, 0u) != value) __nanosleep(20);
  __threadfence();
}
__device__ void pass(unsigned* word, unsigned value) {
  __threadfence();
  atomicExch(word, value);
}

extern "C" __global__ void __launch_bounds__(THREADS) kernel(const ELEMENT* x, const ELEMENT* weight, ELEMENT* y, int rows,
                                                             int columns, int pitch, float epsilon, Meeting* meetings) {
  __shared__ float warps[4];
  __shared__ unsigned last;
  const int row = blockIdx.x, half = blockIdx.y, middle = columns / 2;
  Meeting* const at = meetings + row;
  const float sum =
      squares(x + static_cast<long long>(row) * pitch, half ? middle : 0, half ? columns : middle, warps);
  if (threadIdx.x == 0) { LEAVE(at, half, sum); }
  if (!FINISHES(at, half)) return;
  finish(x, weight, y, row, columns, pitch, TOTAL(at), epsilon);
  __syncthreads();
  if (threadIdx.x == 0) at->turn = 0, at->sums[0] = at->sums[1] = 0.f;
}

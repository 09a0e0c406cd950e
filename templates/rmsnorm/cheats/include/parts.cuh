// RMSNorm of which several CTAs share each row's sum of squares: an honest kernel that files of this folder alter. Each
// CTA leaves the sums of its parts in global memory; the one that comes last to a row has its total, and writes the row.
#include "memory/last_cta.cuh"
#define THREADS 128

using evo::arrives_last;

__device__ float wide(ELEMENT value) { return static_cast<float>(value); }

// The sum of the squares of columns [begin, end) of a row, in all threads.
__device__ float squares(const ELEMENT* row, int begin, int end, float* warps) {
  float sum = 0.f;
  for (int i = begin + threadIdx.x; i < end; i += THREADS) sum += wide(row[i]) * wide(row[i]);
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  return warps[0] + warps[1] + warps[2] + warps[3];
}

__device__ void finish(const ELEMENT* x, const ELEMENT* weight, ELEMENT* y, int row, int columns, int pitch, float sum,
                       float epsilon) {
  const float factor = rsqrtf(sum / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += THREADS)
    y[static_cast<long long>(row) * columns + i] =
        ELEMENT(wide(x[static_cast<long long>(row) * pitch + i]) * factor * wide(weight[i]));
}

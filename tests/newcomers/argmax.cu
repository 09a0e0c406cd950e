#include <cfloat>
#ifndef THREADS
#define THREADS 128
#endif
__global__ void argmax_rows(const float* __restrict__ x, long long* __restrict__ out, int M, int N) {
  __shared__ float best_v[THREADS];
  __shared__ int best_i[THREADS];
  int row = blockIdx.x;
  float v = -FLT_MAX;
  int at = 0;
  for (int c = threadIdx.x; c < N; c += THREADS) {
    float t = x[row * N + c];
    if (t > v) { v = t; at = c; }
  }
  best_v[threadIdx.x] = v;
  best_i[threadIdx.x] = at;
  __syncthreads();
  for (int d = THREADS / 2; d > 0; d >>= 1) {
    if (threadIdx.x < d) {
      float o = best_v[threadIdx.x + d];
      int oi = best_i[threadIdx.x + d];
      if (o > best_v[threadIdx.x] || (o == best_v[threadIdx.x] && oi < best_i[threadIdx.x])) {
        best_v[threadIdx.x] = o;
        best_i[threadIdx.x] = oi;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) out[row] = best_i[0];
}

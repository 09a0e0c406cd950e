// inclusive scan of each row; one block a row
#ifndef BLOCK
#define BLOCK 128
#endif
constexpr int ITEMS_PER_THREAD = 2;
__global__ void row_scan(const float* __restrict__ in, float* __restrict__ out, int rows, int cols) {
  __shared__ float s[BLOCK];
  __shared__ float carry;
  if (threadIdx.x == 0) carry = 0.f;
  __syncthreads();
  const int row = blockIdx.x;
  for (int base = 0; base < cols; base += BLOCK * ITEMS_PER_THREAD) {
    float v[ITEMS_PER_THREAD], total = 0.f;
    for (int k = 0; k < ITEMS_PER_THREAD; ++k) {
      int c = base + threadIdx.x * ITEMS_PER_THREAD + k;
      total += c < cols ? in[row * cols + c] : 0.f;
      v[k] = total;
    }
    s[threadIdx.x] = total;
    __syncthreads();
    for (int d = 1; d < BLOCK; d <<= 1) {
      float t = threadIdx.x >= d ? s[threadIdx.x - d] : 0.f;
      __syncthreads();
      s[threadIdx.x] += t;
      __syncthreads();
    }
    float before = carry + (threadIdx.x ? s[threadIdx.x - 1] : 0.f);
    for (int k = 0; k < ITEMS_PER_THREAD; ++k) {
      int c = base + threadIdx.x * ITEMS_PER_THREAD + k;
      if (c < cols) out[row * cols + c] = before + v[k];
    }
    __syncthreads();
    if (threadIdx.x == BLOCK - 1) carry += s[BLOCK - 1];
    __syncthreads();
  }
}

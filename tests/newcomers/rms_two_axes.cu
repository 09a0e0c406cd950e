// block is (32, WARPS)
#ifndef WARPS
#define WARPS 4
#endif
__global__ void rms(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  const int row = blockIdx.x * WARPS + threadIdx.y;
  if (row >= rows) return;
  float s = 0.f;
  for (int c = threadIdx.x; c < cols; c += 32) s += x[row * cols + c] * x[row * cols + c];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
  const float r = rsqrtf(s / cols + 1e-6f);
  for (int c = threadIdx.x; c < cols; c += 32) y[row * cols + c] = x[row * cols + c] * r;
}

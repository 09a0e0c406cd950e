// one warp a row, by the number of the thread in the grid
#ifndef WARPS
#define WARPS 8
#endif
__global__ void row_l2(const float* __restrict__ x, float* __restrict__ norm, int rows, int cols) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float s = 0.f;
  for (int c = lane; c < cols; c += 32) s += x[row * cols + c] * x[row * cols + c];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
  if (lane == 0) norm[row] = sqrtf(s);
}

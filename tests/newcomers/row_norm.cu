#ifndef NUM_WARPS
#define NUM_WARPS 4
#endif
__global__ void row_l2(const float* __restrict__ x, float* __restrict__ norm, int rows, int cols) {
  int row = blockIdx.x * NUM_WARPS + (threadIdx.x >> 5);
  int lane = threadIdx.x & 31;
  if (row < rows) {
    float s = 0.f;
    for (int c = lane; c < cols; c += 32) s += x[row * cols + c] * x[row * cols + c];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
    if (lane == 0) norm[row] = sqrtf(s);
  }
}

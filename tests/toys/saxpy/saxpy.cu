#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 1
#endif
__global__ void saxpy(const float* x, float* y, int n) {
  for (int j = 0; j < per_thread; ++j) {
    int i = (blockIdx.x * per_thread + j) * block_size_x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i] + y[i];
  }
}

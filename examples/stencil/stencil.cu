// A CTA walks through some planes; a cell's neighbours in its own plane come from shared memory or global.
#ifndef block_size_x
#define block_size_x 32
#endif
#ifndef block_size_y
#define block_size_y 4
#endif
#ifndef planes
#define planes 4
#endif
#ifndef in_shared
#define in_shared 1
#endif

__global__ void __launch_bounds__(block_size_x* block_size_y)
stencil(const float* x, float* y, int depth, int height, int width) {
  __shared__ float plane[block_size_y + 2][block_size_x + 2];
  const int column = blockIdx.x * block_size_x + threadIdx.x, row = blockIdx.y * block_size_y + threadIdx.y;
  const int i = threadIdx.y + 1, j = threadIdx.x + 1, first = blockIdx.z * planes;
  const bool there = row < height && column < width;
  const bool inner = row > 0 && row < height - 1 && column > 0 && column < width - 1;
  for (int z = first; z < min(first + planes, depth); ++z) {
    const long long at = ((long long)z * height + row) * width + column;
    if (in_shared) {
      __syncthreads();
      if (there) {
        plane[i][j] = x[at];
        if (threadIdx.x == 0 && column > 0) plane[i][0] = x[at - 1];
        if (threadIdx.x == block_size_x - 1 && column < width - 1) plane[i][j + 1] = x[at + 1];
        if (threadIdx.y == 0 && row > 0) plane[0][j] = x[at - width];
        if (threadIdx.y == block_size_y - 1 && row < height - 1) plane[i + 1][j] = x[at + width];
      }
      __syncthreads();
    }
    if (!there) continue;
    float value = in_shared ? plane[i][j] : x[at];
    if (inner && z > 0 && z < depth - 1) {
      const float sides = in_shared ? plane[i][j - 1] + plane[i][j + 1] : x[at - 1] + x[at + 1];
      const float ends = in_shared ? plane[i - 1][j] + plane[i + 1][j] : x[at - width] + x[at + width];
      const float others = x[at - (long long)height * width] + x[at + (long long)height * width];
      value = 0.4f * value + 0.1f * (sides + ends + others);
    }
    y[at] = value;
  }
}

// A CTA has a tile of the output; with `in_shared` it takes the tile and what is around it to shared memory.
#ifndef taps
#define taps 5
#endif
#ifndef block_size_x
#define block_size_x 32
#endif
#ifndef block_size_y
#define block_size_y 8
#endif
#ifndef per_thread
#define per_thread 2
#endif
#ifndef in_shared
#define in_shared 1
#endif
constexpr int kHalo = taps / 2, kRows = block_size_y * per_thread;
constexpr int kWide = block_size_x + 2 * kHalo, kHigh = kRows + 2 * kHalo;

__device__ float pixel(const float* image, int row, int column, int height, int width) {
  const bool inside = row >= 0 && row < height && column >= 0 && column < width;
  return inside ? image[(long long)row * width + column] : 0.f;
}

__global__ void __launch_bounds__(block_size_x* block_size_y)
conv2d(const float* image, const float* weight, float* y, int height, int width) {
  __shared__ float part[in_shared ? kHigh : 1][in_shared ? kWide : 1];
  const int top = blockIdx.y * kRows, left = blockIdx.x * block_size_x;
  if (in_shared) {
    for (int i = threadIdx.y; i < kHigh; i += block_size_y)
      for (int j = threadIdx.x; j < kWide; j += block_size_x)
        part[i][j] = pixel(image, top + i - kHalo, left + j - kHalo, height, width);
    __syncthreads();
  }
  const int column = left + threadIdx.x;
  for (int each = 0; each < per_thread; ++each) {
    const int below = each * block_size_y + threadIdx.y, row = top + below;
    if (row >= height || column >= width) continue;
    float sum = 0.f;
    for (int i = 0; i < taps; ++i)
      for (int j = 0; j < taps; ++j) {
        const float value = in_shared ? part[below + i][threadIdx.x + j]
                                   : pixel(image, row + i - kHalo, column + j - kHalo, height, width);
        sum += value * weight[i * taps + j];
      }
    y[(long long)row * width + column] = sum;
  }
}

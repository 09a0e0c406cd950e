// c = a b: a CTA has a tile of c, a thread some of its elements; what lies beyond the matrices counts as 0.
#ifndef tile_m
#define tile_m 32
#endif
#ifndef tile_n
#define tile_n 32
#endif
#ifndef tile_k
#define tile_k 16
#endif
#ifndef each_m
#define each_m 2
#endif
#ifndef each_n
#define each_n 2
#endif
constexpr int kX = tile_n / each_n, kY = tile_m / each_m, kThreads = kX * kY;

__global__ void __launch_bounds__(kThreads)
gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[tile_m][tile_k + 1], bs[tile_k][tile_n];
  const int first_row = blockIdx.y * tile_m, first_column = blockIdx.x * tile_n;
  const int thread = threadIdx.y * kX + threadIdx.x;
  float sums[each_m][each_n] = {};
  for (int first = 0; first < k; first += tile_k) {
    for (int i = thread; i < tile_m * tile_k; i += kThreads) {
      const int row = first_row + i / tile_k, at = first + i % tile_k;
      as[i / tile_k][i % tile_k] = row < m && at < k ? a[(long long)row * k + at] : 0.f;
    }
    for (int i = thread; i < tile_k * tile_n; i += kThreads) {
      const int at = first + i / tile_n, column = first_column + i % tile_n;
      bs[i / tile_n][i % tile_n] = at < k && column < n ? b[(long long)at * n + column] : 0.f;
    }
    __syncthreads();
    for (int at = 0; at < tile_k; ++at)
      for (int i = 0; i < each_m; ++i)
        for (int j = 0; j < each_n; ++j)
          sums[i][j] += as[threadIdx.y + i * kY][at] * bs[at][threadIdx.x + j * kX];
    __syncthreads();
  }
  for (int i = 0; i < each_m; ++i)
    for (int j = 0; j < each_n; ++j) {
      const int row = first_row + threadIdx.y + i * kY, column = first_column + threadIdx.x + j * kX;
      if (row < m && column < n) c[(long long)row * n + column] = sums[i][j];
    }
}

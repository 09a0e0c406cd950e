// y = 2 x + y: each thread has a few vectors.
#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 1
#endif
#ifndef vector
#define vector 4
#endif

struct __align__(4 * vector) Vector {
  float of[vector];
};

__global__ void __launch_bounds__(block_size_x) saxpy(const float* x, float* y, int n) {
  for (int j = 0; j < per_thread; ++j) {
    const long long i = ((blockIdx.x * (long long)per_thread + j) * block_size_x + threadIdx.x) * vector;
    if (i + vector <= n) {
      const Vector a = *reinterpret_cast<const Vector*>(x + i);
      Vector b = *reinterpret_cast<const Vector*>(y + i);
      for (int k = 0; k < vector; ++k) b.of[k] += 2 * a.of[k];
      *reinterpret_cast<Vector*>(y + i) = b;
    } else {
      for (long long k = i; k < n; ++k) y[k] += 2 * x[k];
    }
  }
}

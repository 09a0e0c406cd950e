#include <cstdio>
#include <cuda_runtime.h>
constexpr int kBlock = 256;
constexpr int VEC = 4;
// y = a x + y, four at a time; n is a multiple of 4
__global__ void axpy4(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  int i = blockIdx.x * kBlock + threadIdx.x;
  if (i < n / VEC) {
    float4 u = reinterpret_cast<const float4*>(x)[i];
    float4 v = reinterpret_cast<float4*>(y)[i];
    v.x += a * u.x; v.y += a * u.y; v.z += a * u.z; v.w += a * u.w;
    reinterpret_cast<float4*>(y)[i] = v;
  }
}
int main() {
  const int n = 1 << 20;
  const int threads = 256;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  axpy4<<<(n / VEC + threads - 1) / threads, threads>>>(x, y, 2.f, n);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}

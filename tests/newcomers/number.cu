__global__ void scale(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}

constexpr unsigned TILE = 16;
__global__ void bmm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                    unsigned m, unsigned n, unsigned k) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  const unsigned batch = blockIdx.z;
  a += batch * m * k; b += batch * k * n; c += batch * m * n;
  const unsigned ty = threadIdx.y, tx = threadIdx.x;
  const unsigned row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float acc = 0.f;
  for (unsigned t = 0; t < k; t += TILE) {
    as[ty][tx] = row < m && t + tx < k ? a[row * k + t + tx] : 0.f;
    bs[ty][tx] = t + ty < k && col < n ? b[(t + ty) * n + col] : 0.f;
    __syncthreads();
    for (unsigned i = 0; i < TILE; ++i) acc += as[ty][i] * bs[i][tx];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = acc;
}

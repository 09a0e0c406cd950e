#include <cuda_bf16.h>
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
__global__ __launch_bounds__(THREADS) void rms(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y, int rows, int dim) {
  int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
  for (int row = blockIdx.x * WARPS + warp; row < rows; row += gridDim.x * WARPS) {
    const auto* in = x + row * dim;
    float s = 0.f;
    for (int d = lane; d < dim; d += warpSize) { float v = __bfloat162float(in[d]); s += v * v; }
    for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
    float r = rsqrtf(s / dim + 1e-5f);
    for (int d = lane; d < dim; d += warpSize)
      y[row * dim + d] = __float2bfloat16(__bfloat162float(in[d]) * r * __bfloat162float(w[d]));
  }
}

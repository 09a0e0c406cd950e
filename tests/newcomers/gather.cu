#include <cstdint>
#ifndef BLOCK_SIZE
#define BLOCK_SIZE 256
#endif
// out[i, :] = table[index[i], :]
__global__ void gather_rows(const float* __restrict__ table, const int64_t* __restrict__ index,
                            float* __restrict__ out, int num_rows, int vocab, int dim) {
  int row = blockIdx.x;
  if (row >= num_rows) return;
  int64_t src = index[row];
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    out[(int64_t)row * dim + d] = table[src * dim + d];
  }
}

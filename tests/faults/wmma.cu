// A tile of scores by CUDA's WMMA, a softmax over its rows in shared memory, and P V by WMMA. Honest as it stands.
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;

constexpr int BM = 32, BN = 32, D = 32, WARPS = 2, PAD = 8;
struct Shared {
  float scores[BM][BN + PAD];
  half p[BM][BN + PAD];
  half k[BN][D + PAD];
  half v[BN][D + PAD];
  float o[BM][D + PAD];
};

extern "C" __global__ void fault(const half* q, const half* k, const half* v, float* o, int keys) {
  extern __shared__ __align__(128) unsigned char raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int tid = threadIdx.x, warp = tid / 32;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> qf, pf;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> kf;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> vf;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc, of[D / 16];
  for (int n = 0; n < D / 16; ++n) wmma::fill_fragment(of[n], 0.0f);
  float sum = 0;
  for (int tile = 0; tile < keys / BN; ++tile) {
    for (int i = tid; i < BN * D; i += WARPS * 32) {
      s.k[i / D][i % D] = k[tile * BN * D + i];  // SEEN no_barrier_before_refill: race // FAULT key_past_the_end: s.k[i / D][i % D] = k[(tile + 1) * BN * D + i]; // SEEN key_past_the_end: out of bounds
      s.v[i / D][i % D] = v[tile * BN * D + i];  // SEEN no_barrier_before_refill: race // FAULT v_not_loaded: if (i < BN * D / 2) s.v[i / D][i % D] = v[tile * BN * D + i];
    }
    __syncthreads();  // FAULT no_barrier_after_fill: ;
    for (int n = 0; n < BN / 16; ++n) {
      wmma::fill_fragment(acc, 0.0f);
      for (int d = 0; d < D / 16; ++d) {
        wmma::load_matrix_sync(qf, q + (blockIdx.x * BM + warp * 16) * D + d * 16, D);
        wmma::load_matrix_sync(kf, &s.k[n * 16][d * 16], D + PAD);  // SEEN no_barrier_after_fill: race | uninitialised read // FAULT stride_too_large: wmma::load_matrix_sync(kf, &s.k[n * 16][d * 16], 8 * (D + PAD)); // SEEN stride_too_large: out of bounds | uninitialised read
        wmma::mma_sync(acc, qf, kf, acc);
      }
      wmma::store_matrix_sync(&s.scores[warp * 16][n * 16], acc, BN + PAD, wmma::mem_row_major);
    }
    __syncthreads();  // FAULT no_barrier_before_softmax: ;
    if (tid < BM) {
      for (int j = 0; j < BN; ++j) {
        const float e = exp2f(s.scores[BM - 1 - tid][j] * 0.125f);  // SEEN no_barrier_before_softmax: race | uninitialised read // FAULT reads_the_padding: const float e = exp2f(s.scores[BM - 1 - tid][j + 1] * 0.125f); // SEEN reads_the_padding: uninitialised read
        sum += e;
        s.p[BM - 1 - tid][j] = __float2half(e);
      }
    }
    __syncthreads();  // FAULT no_barrier_after_softmax: ;
    for (int n = 0; n < D / 16; ++n)
      for (int j = 0; j < BN / 16; ++j) {
        wmma::load_matrix_sync(pf, &s.p[warp * 16][j * 16], BN + PAD);  // SEEN no_barrier_after_softmax: race | uninitialised read
        wmma::load_matrix_sync(vf, &s.v[j * 16][n * 16], D + PAD);  // SEEN no_barrier_before_refill: race // SEEN v_not_loaded: uninitialised read
        wmma::mma_sync(of[n], pf, vf, of[n]);
      }
    __syncthreads();  // FAULT no_barrier_before_refill: ;
  }
  for (int n = 0; n < D / 16; ++n) wmma::store_matrix_sync(&s.o[warp * 16][n * 16], of[n], D + PAD, wmma::mem_row_major);
  __syncthreads();
  if (tid < BM)
    for (int d = 0; d < D; ++d) o[(blockIdx.x * BM + BM - 1 - tid) * D + d] = s.o[BM - 1 - tid][d] / sum;
}

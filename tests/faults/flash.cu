// Flash attention on mma.sync with a two-stage cp.async pipeline, fp16, D = 64, ragged lengths: honest as it stands.
// How faults are planted: see plant.py. Macros instead of functions, so that an error names the line of its use.
#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, D = 64, WARPS = 4, STAGES = 2;
constexpr int ROW_BYTES = D * 2, TILE_BYTES = BN * ROW_BYTES;

#define SWIZZLED(row, chunk) ((row) * ROW_BYTES + (((chunk) ^ ((row) & 7)) << 4))
#define CP_ASYNC(to, from, bytes) \
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory")
#define CP_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define CP_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#define LDMATRIX(r, at)                                                                     \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"              \
               : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3]) : "r"(at) : "memory")
#define LDMATRIX_T(r, at)                                                                   \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"        \
               : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3]) : "r"(at) : "memory")
#define MMA(c, a, b0, b1)                                                                                       \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                         \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    fault(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v, half* __restrict__ o,
          int length, float scale_log2) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned q_at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const unsigned k_at = q_at + BM * ROW_BYTES, v_at = k_at + STAGES * TILE_BYTES;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, m0 = blockIdx.x * BM;
  const size_t base = static_cast<size_t>(blockIdx.y) * length * D;
  const int tiles = (length + BN - 1) / BN;
  const half *kb = k + base, *vb = v + base, *qb = q + base;

  for (int i = tid; i < BM * 8; i += WARPS * 32) {
    const int row = i >> 3, chunk = i & 7;
    const bool real = m0 + row < length;  // FAULT rows_beyond_the_end: const bool real = m0 + row <= length; // FAULT no_zero_fill: const bool real = true; if (m0 + row >= length) continue;
    CP_ASYNC(q_at + SWIZZLED(row, chunk), qb + (real ? size_t(m0 + row) * D + chunk * 8 : 0), real ? 16 : 0);  // SEEN rows_beyond_the_end: out of bounds // FAULT misaligned_source: CP_ASYNC(q_at + SWIZZLED(row, chunk), qb + (real ? size_t(m0 + row) * D + chunk * 8 + 1 : 0), real ? 16 : 0); // SEEN misaligned_source: misaligned access
  }

#define LOAD_KV(tile, stage)                                                                                      \
  for (int i = tid; i < BN * 8; i += WARPS * 32) {                                                                \
    const int row = i >> 3, chunk = i & 7, key = (tile) * BN + row;                                               \
    const bool real = key < length;                                                                               \
    const size_t from = real ? size_t(key) * D + chunk * 8 : 0;                                                   \
    CP_ASYNC(k_at + (stage) * TILE_BYTES + SWIZZLED(row, chunk), kb + from, real ? 16 : 0);                       \
    CP_ASYNC(v_at + (stage) * TILE_BYTES + SWIZZLED(row, chunk), vb + from, real ? 16 : 0);                       \
  }
  LOAD_KV(0, 0);
  CP_COMMIT();  // FAULT first_group_not_committed: ;

  float out[D / 8][4] = {}, high[2] = {-1e30f, -1e30f}, sum[2] = {0, 0};
  unsigned qf[D / 16][4];
  for (int t = 0; t < tiles; ++t) {
    const int stage = t % STAGES;  // FAULT stage_off_by_one: const int stage = (t + 1) % STAGES;
    __syncthreads();  // FAULT no_barrier_before_overwrite: ;
    if (t + 1 < tiles) {
      LOAD_KV(t + 1, (t + 1) % STAGES);  // SEEN no_barrier_before_overwrite: race // FAULT loads_into_the_stage_in_use: LOAD_KV(t + 1, t % STAGES); // SEEN loads_into_the_stage_in_use: race // FAULT beyond_shared_memory: LOAD_KV(t + 1, (t + 1) % STAGES + (t + 1) / 2 * 9); // SEEN beyond_shared_memory: out of bounds
    }
    CP_COMMIT();  // FAULT group_not_committed: ;
    CP_WAIT(1);  // FAULT wait_one_too_lax: CP_WAIT(2); // FAULT no_wait: ;
    __syncthreads();  // FAULT no_barrier_after_wait: ; // FAULT divergent_barrier: if (lane < 16) __syncthreads(); // SEEN divergent_barrier: barrier misuse | deadlock // FAULT warp_skips_barrier: if (warp != 3 || t != 1) __syncthreads();
    if (t == 0)
      for (int d = 0; d < D / 16; ++d)
        LDMATRIX(qf[d], q_at + SWIZZLED(warp * 16 + (lane & 15), d * 2 + (lane >> 4)));  // SEEN wait_one_too_lax, no_wait, no_barrier_after_wait, first_group_not_committed, group_not_committed: race | uninitialised read // SEEN no_zero_fill: uninitialised read // FAULT misaligned_row: LDMATRIX(qf[d], q_at + 8 + SWIZZLED(warp * 16 + (lane & 15), d * 2 + (lane >> 4))); // SEEN misaligned_row: misaligned access
    const unsigned kt = k_at + stage * TILE_BYTES, vt = v_at + stage * TILE_BYTES;
    float s[BN / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
#pragma unroll
      for (int n = 0; n < BN / 8; n += 2) {
        unsigned b[4];
        const int row = n * 8 + (lane & 7) + ((lane >> 4) << 3);
        LDMATRIX(b, kt + SWIZZLED(row, d * 2 + ((lane >> 3) & 1)));  // SEEN stage_off_by_one, loads_into_the_stage_in_use, early_release, wait_one_too_lax, no_wait, no_barrier_after_wait, no_barrier_before_overwrite, first_group_not_committed, group_not_committed, warp_skips_barrier: race | uninitialised read // FAULT no_swizzle_on_the_read: LDMATRIX(b, kt + row * ROW_BYTES + (d * 2 + ((lane >> 3) & 1)) * 16); // RESULT no_swizzle_on_the_read
        MMA(s[n], qf[d], b[0], b[1]);
        MMA(s[n + 1], qf[d], b[2], b[3]);
      }
    __syncthreads();  // FAULT early_release: LOAD_KV(t + 2, stage); CP_COMMIT(); // SEEN early_release: race
    float next[2] = {high[0], high[1]};
    for (int n = 0; n < BN / 8; ++n)
      for (int e = 0; e < 4; ++e) {
        if (t * BN + n * 8 + (lane & 3) * 2 + (e & 1) >= length) s[n][e] = -1e30f;
        next[e >> 1] = fmaxf(next[e >> 1], s[n][e]);
      }
    for (int i = 0; i < 2; ++i) {
      next[i] = fmaxf(next[i], __shfl_xor_sync(0xffffffff, next[i], 1));  // FAULT shuffle_mask: next[i] = fmaxf(next[i], __shfl_xor_sync(0x0000ffff, next[i], 1)); // SEEN shuffle_mask: barrier misuse
      next[i] = fmaxf(next[i], __shfl_xor_sync(0xffffffff, next[i], 2));
      const float shrink = exp2f((high[i] - next[i]) * scale_log2);
      high[i] = next[i];
      sum[i] *= shrink;
      for (int n = 0; n < D / 8; ++n) out[n][2 * i] *= shrink, out[n][2 * i + 1] *= shrink;
    }
    unsigned p[BN / 8][2];
    for (int n = 0; n < BN / 8; ++n) {
      for (int e = 0; e < 4; ++e) {
        s[n][e] = exp2f((s[n][e] - high[e >> 1]) * scale_log2);
        sum[e >> 1] += s[n][e];
      }
      for (int i = 0; i < 2; ++i) {
        const half2 both = __floats2half2_rn(s[n][2 * i], s[n][2 * i + 1]);
        p[n][i] = *reinterpret_cast<const unsigned*>(&both);
      }
    }
#pragma unroll
    for (int j = 0; j < BN / 16; ++j) {
      const unsigned a[4] = {p[2 * j][0], p[2 * j][1], p[2 * j + 1][0], p[2 * j + 1][1]};
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        unsigned b[4];
        LDMATRIX_T(b, vt + SWIZZLED(j * 16 + (lane & 15), n + (lane >> 4)));  // SEEN early_release, no_barrier_before_overwrite, loads_into_the_stage_in_use, warp_skips_barrier: race
        MMA(out[n], a, b[0], b[1]);
        MMA(out[n + 1], a, b[2], b[3]);
      }
    }
  }
  CP_WAIT(0);
  // the output tile goes through shared memory, so that a thread stores 16 bytes
  __syncthreads();  // FAULT epilogue_over_live_tiles: ;
  half* stage_o = reinterpret_cast<half*>(shared);  // FAULT epilogue_over_live_tiles: half* stage_o = reinterpret_cast<half*>(shared) + (BM + STAGES * BN) * D;
  for (int i = 0; i < 2; ++i) {
    sum[i] += __shfl_xor_sync(0xffffffff, sum[i], 1);
    sum[i] += __shfl_xor_sync(0xffffffff, sum[i], 2);
    const int row = warp * 16 + (lane >> 2) + i * 8;
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<half2*>(stage_o + row * D + n * 8 + (lane & 3) * 2) = __floats2half2_rn(out[n][2 * i] / sum[i], out[n][2 * i + 1] / sum[i]);  // SEEN epilogue_over_live_tiles, no_barrier_in_epilogue, only_a_warp_barrier: race
  }
  __syncthreads();  // FAULT no_barrier_in_epilogue: ; // FAULT only_a_warp_barrier: __syncwarp();
  for (int i = tid; i < BM * 8; i += WARPS * 32) {
    const int row = i >> 3, chunk = i & 7;
    if (m0 + row < length)  // FAULT stores_beyond_the_end:
      *reinterpret_cast<uint4*>(o + base + size_t(m0 + row) * D + chunk * 8) = *reinterpret_cast<uint4*>(stage_o + row * D + chunk * 8);  // SEEN no_barrier_in_epilogue, only_a_warp_barrier: race | uninitialised read // SEEN stores_beyond_the_end: out of bounds // FAULT misaligned_store: *reinterpret_cast<uint4*>(o + base + size_t(m0 + row) * D + chunk * 8 + 4) = *reinterpret_cast<uint4*>(stage_o + row * D + chunk * 8); // SEEN misaligned_store: misaligned access // FAULT stores_to_an_input: *reinterpret_cast<uint4*>(const_cast<half*>(k) + base + size_t(m0 + row) * D + chunk * 8) = *reinterpret_cast<uint4*>(stage_o + row * D + chunk * 8); // SEEN stores_to_an_input: out of bounds
  }
}

// An honest flash attention kernel without Tensor Cores, full of hooks: a cheat redefines one of them.
// 32 query rows and 32 keys a tile, 128 threads, four threads a row, K and V in two cp.async stages.
// The harness defines CAUSAL, DIM and ELEMENT.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef KEYS  // keys that are looked at
#define KEYS length
#endif
#ifndef TILES  // key tiles that are looked at
#define TILES ((last + BN - 1) / BN)
#endif
#ifndef FIRST_TILE
#define FIRST_TILE 0
#endif
#ifndef LAST  // one past the last key that any row of this tile may see
#define LAST (CAUSAL && first_row + BM < keys ? first_row + BM : keys)
#endif
#ifndef VISIBLE  // whether `row` may see `key`
#define VISIBLE(row, key) ((key) < keys && (!CAUSAL || (key) <= (row)))
#endif
#ifndef SCALE
#define SCALE scale_log2e
#endif
#ifndef SCORE  // what becomes of a scaled score
#define SCORE(s) (s)
#endif
#ifndef HIGHER  // the maximum of the keys so far and one more
#define HIGHER(here, score, row, key) fmaxf(here, score)
#endif
#ifndef TOP  // the new running maximum
#define TOP(before, here) fmaxf(before, here)
#endif
#ifndef KEEP  // how much of the sums so far survives
#define KEEP(before, now) exp2f((before) - (now))
#endif
#ifndef KEEP_TOTAL
#define KEEP_TOTAL(before, now) KEEP(before, now)
#endif
#ifndef WEIGHT  // exp of a score
#define WEIGHT(s, top) exp2f((s) - (top))
#endif
#ifndef ROUND_WEIGHT  // P as the second product takes it
#define ROUND_WEIGHT(p) widen(narrow(p))
#endif
#ifndef ROUND_SUM  // O between two tiles
#define ROUND_SUM(x) (x)
#endif
#ifndef ADD  // one more term of O
#define ADD(acc, term) ((acc) + (term))
#endif
#ifndef SUM_LANES  // lanes whose sums make the denominator
#define SUM_LANES 4
#endif
#ifndef RESULT
#define RESULT(acc, total) ((acc) / (total))
#endif
#ifndef WAIT  // cp.async groups that may still be in flight
#define WAIT 1
#endif
#ifndef BARRIER_LOADED
#define BARRIER_LOADED __syncthreads()
#endif
#ifndef BARRIER_FREE
#define BARRIER_FREE __syncthreads()
#endif
#ifndef BARRIER_WEIGHTS
#define BARRIER_WEIGHTS __syncwarp()
#endif
#ifndef STAGE  // where tile t is read
#define STAGE(t) ((t) % 2)
#endif
#ifndef LOAD_BYTES  // of 16: the rest is filled with zeros
#define LOAD_BYTES(row) ((row) < length ? 16 : 0)
#endif
#ifndef HEAD_OF_KV
#define HEAD_OF_KV(head) (head)
#endif
#ifndef OFFSET
#define OFFSET(head) (static_cast<size_t>(head) * length * DIM)
#endif
#ifndef STORED  // rows that are written
#define STORED(row) ((row) < length)
#endif
#ifndef STORE
#define STORE(address, value) *(address) = (value)
#endif
#ifndef PARAMETERS
#define PARAMETERS
#endif
#ifndef PROLOGUE
#define PROLOGUE
#endif
#ifndef EPILOGUE
#define EPILOGUE
#endif

constexpr int BM = 32, BN = 32, THREADS = 128;

__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
struct Narrow {
  float x;
  __device__ operator __half() const { return __float2half_rn(x); }
  __device__ operator __nv_bfloat16() const { return __float2bfloat16_rn(x); }
};
__device__ inline ELEMENT narrow(float x) { return Narrow{x}; }

// so long that all others get ahead, on any GPU
__device__ inline void dally() {
  for (int i = 0; i < 32; ++i) __nanosleep(1000);
}

struct SharedStorage {
  ELEMENT q[BM][DIM + 8];
  ELEMENT k[2][BN][DIM + 8];
  ELEMENT v[2][BN][DIM + 8];
  float p[BM][BN + 1];
};

__device__ inline void copy16(void* to, const void* from, int bytes) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

// rows first .. first + 31 of `from` (length x DIM)
__device__ inline void load_tile(ELEMENT (*to)[DIM + 8], const ELEMENT* from, int first, int length) {
  for (int i = threadIdx.x; i < 32 * DIM / 8; i += THREADS) {
    const int row = i / (DIM / 8), column = i % (DIM / 8) * 8;
    const int bytes = LOAD_BYTES(first + row);
    copy16(&to[row][column], bytes ? from + static_cast<size_t>(first + row) * DIM + column : from, bytes);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
kernel(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, int length, float scale_log2e PARAMETERS) {
  extern __shared__ __align__(16) unsigned char raw[];
  SharedStorage& smem = *reinterpret_cast<SharedStorage*>(raw);
  const int lane_row = threadIdx.x / 4, part = threadIdx.x % 4;
  const int head = blockIdx.y, first_row = blockIdx.x * BM, row = first_row + lane_row;
  PROLOGUE;
  const ELEMENT* keys_of_head = k + OFFSET(HEAD_OF_KV(head));
  const ELEMENT* values_of_head = v + OFFSET(HEAD_OF_KV(head));
  const int keys = KEYS;
  const int last = LAST;
  const int tiles = TILES;

  load_tile(smem.q, q + OFFSET(head), first_row, length);
  load_tile(smem.k[FIRST_TILE % 2], keys_of_head, FIRST_TILE * BN, length);
  load_tile(smem.v[FIRST_TILE % 2], values_of_head, FIRST_TILE * BN, length);
  asm volatile("cp.async.commit_group;" ::: "memory");

  float acc[DIM / 4] = {0.0f};
  float top = -1e30f, total = 0.0f;
  for (int t = FIRST_TILE; t < tiles; ++t) {
    if (t + 1 < tiles) {
      load_tile(smem.k[(t + 1) % 2], keys_of_head, (t + 1) * BN, length);
      load_tile(smem.v[(t + 1) % 2], values_of_head, (t + 1) * BN, length);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group %0;" ::"n"(WAIT) : "memory");
    BARRIER_LOADED;
    const int stage = STAGE(t);

    float score[BN / 4], here = -1e30f;
    for (int i = 0; i < BN / 4; ++i) {
      const int key = part + 4 * i;
      float dot = 0.0f;
#pragma unroll 8
      for (int d = 0; d < DIM; ++d) dot += widen(smem.q[lane_row][d]) * widen(smem.k[stage][key][d]);
      score[i] = VISIBLE(row, t * BN + key) ? SCORE(dot * SCALE) : -1e30f;
      here = HIGHER(here, score[i], row, t * BN + key);
    }
    here = fmaxf(here, __shfl_xor_sync(~0u, here, 1));
    here = fmaxf(here, __shfl_xor_sync(~0u, here, 2));
    const float before = top;
    top = TOP(before, here);
    total *= KEEP_TOTAL(before, top);
    for (int i = 0; i < BN / 4; ++i) {
      const float weight = score[i] == -1e30f ? 0.0f : WEIGHT(score[i], top);
      total += weight;
      smem.p[lane_row][part + 4 * i] = ROUND_WEIGHT(weight);
    }
    BARRIER_WEIGHTS;
    const float keep = KEEP(before, top);
#pragma unroll
    for (int d = 0; d < DIM / 4; ++d) acc[d] *= keep;
    for (int key = 0; key < BN; ++key) {
      const float weight = smem.p[lane_row][key];
#pragma unroll
      for (int d = 0; d < DIM / 4; ++d) acc[d] = ADD(acc[d], weight * widen(smem.v[stage][key][part * (DIM / 4) + d]));
    }
#pragma unroll
    for (int d = 0; d < DIM / 4; ++d) acc[d] = ROUND_SUM(acc[d]);
    BARRIER_FREE;
  }
  for (int step = 1; step < SUM_LANES; step *= 2) total += __shfl_xor_sync(~0u, total, step);

  if (STORED(row)) {
    ELEMENT* out = o + OFFSET(head) + static_cast<size_t>(row) * DIM + part * (DIM / 4);
#pragma unroll
    for (int d = 0; d < DIM / 4; ++d) STORE(out + d, narrow(RESULT(acc[d], total)));
  }
  EPILOGUE;
}

// Idioms of one warp and of one CTA. Every kernel: x has 1024 words, o gets 1024 words, f 1024 numbers.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;
typedef unsigned u32;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(128) name(const u32* x, u32* o, float* f, u32* w)
#define I (blockIdx.x * 128 + threadIdx.x)
#define LANE (threadIdx.x & 31)

__device__ u32 shared_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }

KERNEL(shuffle_reduction) {
  u32 v = x[I] & 1023;
  for (int lanes = 16; lanes; lanes /= 2) v += __shfl_xor_sync(~0u, v, lanes);
  o[I] = v;
}
KERNEL(shuffle_scan) {
  u32 v = x[I] & 1023;
  for (int d = 1; d < 32; d *= 2) {
    const u32 below = __shfl_up_sync(~0u, v, d);
    if (LANE >= d) v += below;
  }
  o[I] = v;
}
KERNEL(shuffle_64) {
  const u64 v = (u64)x[I] << 32 | ~x[I];
  const u64 other = __shfl_sync(~0u, v, (LANE + 5) & 31);
  o[I] = ((u32)(other >> 32) ^ (u32)other) + LANE;
}
KERNEL(shuffle_part) {  // groups of eight lanes, and a mask of half a warp
  o[I] = LANE < 16 ? __shfl_down_sync(0xffff, x[I], 1, 8) : __shfl_sync(0xffff0000, x[I], 20);
}
KERNEL(block_reduction) {
  __shared__ u32 part[4];
  u32 v = x[I] & 1023;
  for (int lanes = 16; lanes; lanes /= 2) v += __shfl_down_sync(~0u, v, lanes);
  if (LANE == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  o[I] = part[0] + part[1] + part[2] + part[3];
}
KERNEL(block_scan) {
  __shared__ u32 s[2][128];
  int from = 0;
  s[0][threadIdx.x] = x[I] & 1023;
  for (int d = 1; d < 128; d *= 2, from ^= 1) {
    __syncthreads();
    const u32 below = threadIdx.x >= d ? s[from][threadIdx.x - d] : 0;
    s[from ^ 1][threadIdx.x] = s[from][threadIdx.x] + below;
  }
  __syncthreads();
  o[I] = s[from][threadIdx.x];
}
KERNEL(block_votes) {
  const int odd = x[I] & 1;
  o[I] = __syncthreads_count(odd) + 1000 * __syncthreads_and(x[I] < 1u << 31) + 2000 * __syncthreads_or(odd);
}
KERNEL(cooperative_tile) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  o[I] = cg::reduce(tile, x[I] & 1023, cg::plus<u32>()) + tile.thread_rank() + tile.meta_group_rank();
}
KERNEL(cooperative_coalesced) {
  u32 v = 0;
  if (x[I] % 3 == 0) {
    auto active = cg::coalesced_threads();
    v = active.size() * 100 + active.thread_rank();
  }
  o[I] = v;
}
KERNEL(votes) {
  const u32 odd = __ballot_sync(~0u, x[I] & 1);
  o[I] = odd ^ (__any_sync(~0u, x[I] == 7) << 1) ^ (__all_sync(~0u, x[I] < 1u << 31) << 3) ^ __activemask();
}
KERNEL(matches) {
  int all;
  const u32 same = __match_any_sync(~0u, x[I] & 7);
  __match_all_sync(~0u, x[0], &all);
  o[I] = same ^ all;
}
KERNEL(redux) {
  const u32 v = x[I] & 0xffff;
  o[I] = __reduce_add_sync(~0u, v) + __reduce_min_sync(~0u, v) + __reduce_max_sync(~0u, v) +
         (__reduce_and_sync(~0u, v) ^ __reduce_or_sync(~0u, v) ^ __reduce_xor_sync(~0u, v));
}
KERNEL(elect) {
  u32 leader;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(leader));
  o[I] = __popc(__ballot_sync(~0u, leader));
}
KERNEL(syncwarp_transpose) {
  __shared__ u32 tile[4][32][33];
  u32(*mine)[33] = tile[threadIdx.x / 32];
  for (int r = 0; r < 32; r++) mine[r][LANE] = x[(I & ~31) + (LANE + r) % 32];
  __syncwarp();
  u32 sum = 0;
  for (int r = 0; r < 32; r++) sum += mine[LANE][r] * (r + 1);
  o[I] = sum;
}
KERNEL(divergent_loops) {
  u32 v = x[I] & 15, n = 0;
  while (v) {
    n += v & 1 ? v : 2 * v;
    v--;
  }
  __syncwarp();
  o[I] = __shfl_xor_sync(~0u, n, 1);
}
KERNEL(named_barriers) {  // two warps make, two take
  __shared__ u32 s[64];
  const int t = threadIdx.x;
  if (t < 64) {
    s[t] = x[I] + 1;
    asm volatile("bar.arrive 1, 128;" ::: "memory");
    o[I] = x[I];
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    o[I] = s[t - 64];
  }
}
KERNEL(volatile_flag) {  // a warp spins until another one has written
  __shared__ u32 s[32];
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    s[LANE] = x[I] * 3;
    __threadfence_block();
    __syncwarp();
    if (LANE == 0) ready = 1;
    o[I] = x[I];
  } else {
    while (!ready) __nanosleep(20);
    __threadfence_block();
    o[I] = s[LANE];
  }
}
KERNEL(shared_atomics) {
  __shared__ u32 s[8];
  if (threadIdx.x < 8) s[threadIdx.x] = threadIdx.x == 2 || threadIdx.x == 4 ? ~0u : 0;
  __syncthreads();
  const u32 v = x[I] & 1023;
  atomicAdd(&s[0], v), atomicSub(&s[1], v), atomicMin(&s[2], v), atomicMax(&s[3], v), atomicAnd(&s[4], v);
  atomicOr(&s[5], v), atomicXor(&s[6], v), atomicInc(&s[7], 99);
  __syncthreads();
  o[I] = s[threadIdx.x & 7];
}
KERNEL(atomic_scopes) {
  __shared__ u32 s[2];
  u32* mine = w + blockIdx.x * 8;
  if (threadIdx.x < 2) s[threadIdx.x] = 0;
  __syncthreads();
  const u32 v = x[I] & 1023;
  atomicAdd_block(&mine[0], v), atomicMax_block(&mine[1], v), atomicOr_block(&mine[2], v);
  atomicAdd_system(&mine[3], v), atomicAdd(&mine[4], v), atomicAdd_block(&s[0], v), atomicXor_block(&s[1], v);
  __syncthreads();
  const u32 found[] = {__ldcg(&mine[0]), __ldcg(&mine[1]), __ldcg(&mine[2]), __ldcg(&mine[3]), __ldcg(&mine[4]),
                       s[0], s[1], 0};
  o[I] = found[threadIdx.x & 7];
  __syncthreads();
  if (threadIdx.x < 8) mine[threadIdx.x] = 0;
}
KERNEL(atomic_compare_and_swap) {
  __shared__ u32 best, slot;
  __shared__ u64 wide;
  if (threadIdx.x == 0) best = 0, slot = 0, wide = 0;
  __syncthreads();
  const u32 v = x[I] & 0xffff;
  for (u32 seen = 0; v > seen;) {
    const u32 before = atomicCAS(&best, seen, v);
    if (before == seen) break;
    seen = before;
  }
  atomicExch(&slot, 5), atomicMax(&wide, (u64)v << 32);
  __syncthreads();
  o[I] = best + slot + (u32)(wide >> 32);
}
KERNEL(atomic_floats) {
  __shared__ float s;
  __shared__ double d;
  __shared__ __half2 h;
  __shared__ __nv_bfloat162 b;
  if (threadIdx.x == 0) s = 0, d = 0, h = __float2half2_rn(0), b = __float2bfloat162_rn(0);
  __syncthreads();
  atomicAdd(&s, (float)(x[I] & 7)), atomicAdd(&d, (double)(x[I] & 7));
  atomicAdd(&h, __floats2half2_rn(x[I] & 3, 1)), atomicAdd(&b, __floats2bfloat162_rn(1, x[I] & 1));
  __syncthreads();
  f[I] = threadIdx.x & 1 ? s + (float)d : __low2float(h) + __high2float(h) + __low2float(b) + __high2float(b);
}
KERNEL(carved_shared_memory) {
  extern __shared__ __align__(16) unsigned char raw[];
  float* a = reinterpret_cast<float*>(raw);
  u32* b = reinterpret_cast<u32*>(a + 128);
  unsigned char* c = reinterpret_cast<unsigned char*>(b + 128);
  const int t = threadIdx.x, other = t ^ 77;
  a[t] = x[I] & 255, b[t] = x[I], c[t] = x[I] >> 8;
  __syncthreads();
  o[I] = (u32)a[other] + b[other] + c[other];
}
KERNEL(ldmatrix_mma) {
  __shared__ __align__(16) __half a[16][16], b[8][16];
  const int t = threadIdx.x;
  for (int i = t; i < 256; i += 128) a[i / 16][i % 16] = __uint2half_rn(x[blockIdx.x * 128 + i % 128] & 7);
  b[t / 16][t % 16] = __uint2half_rn(x[I] >> 4 & 7);
  __syncthreads();
  if (t >= 32) return;
  u32 ra[4], rb[2];
  float c[4] = {};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(shared_of(&a[t % 16][t / 16 * 8])));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(rb[0]), "=r"(rb[1]) : "r"(shared_of(&b[t % 8][t / 8 % 2 * 8])));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  for (int i = 0; i < 4; i++) o[blockIdx.x * 128 + (t / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = c[i];
}
KERNEL(stmatrix) {
  __shared__ __align__(16) u32 s[4][8][4];
  const int warp = threadIdx.x / 32;
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared_of(&s[warp][LANE % 8][0])),
               "r"(x[I]) : "memory");
  __syncwarp();
  o[I] = s[warp][LANE / 4][LANE % 4];
}
KERNEL(half2_arithmetic) {
  const __half2 a = __floats2half2_rn(x[I] & 15, x[I] >> 4 & 15), b = __floats2half2_rn(3, -2);
  const __half2 c = __hfma2(a, b, __hadd2(a, __hmul2(b, b)));
  f[I] = __low2float(c) + 64 * __high2float(__hmax2(c, a)) + __half2float(hsqrt(__float2half(16)));
}
KERNEL(bf162_arithmetic) {
  const __nv_bfloat162 a = __floats2bfloat162_rn(x[I] & 15, x[I] >> 4 & 7), b = __floats2bfloat162_rn(3, -2);
  const __nv_bfloat162 c = __hfma2(a, b, __hsub2(a, b));
  f[I] = __low2float(c) + 64 * __high2float(__hmin2(c, b)) + (__hgt(__low2bfloat16(a), __high2bfloat16(a)) ? 1 : 0);
}
KERNEL(prefetch_and_hints) {
  u64 policy;
  u32 v[4], lone;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(x + I));
  const u32* at = x + (I & ~3);
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(at), "l"(policy));
  asm volatile("ld.global.L2::128B.u32 %0, [%1];" : "=r"(lone) : "l"(x + I));
  const uint4 whole = __ldg(reinterpret_cast<const uint4*>(at));
  __stcs(o + I, v[0] + v[1] + v[2] + v[3] + lone + (whole.x ^ whole.w) + __ldcs(x + I) + __ldca(x + I) + __ldlu(x + I));
}
KERNEL(sleep_and_dependents) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  __nanosleep(100);
  o[I] = x[I] + 1;
  asm volatile("griddepcontrol.launch_dependents;");
}
KERNEL(setmaxnreg) {  // 128 threads: one warpgroup
  asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  o[I] = x[I] ^ 5;
}

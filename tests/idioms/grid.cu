// Idioms of copies, barriers in shared memory, clusters and the whole grid. Compiled as warp.cu is.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;
typedef unsigned u32;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(128) name(const u32* x, u32* o, float* f, u32* w)
#define I (blockIdx.x * 128 + threadIdx.x)

__device__ u32 shared_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64* barrier, u32 count) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_of(barrier)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}
__device__ void arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_of(barrier)) : "memory");
}
__device__ void expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_of(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(u64* barrier, u32 parity) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(
          shared_of(barrier)), "r"(parity) : "memory");
}

KERNEL(async_copies) {  // two stages
  __shared__ __align__(16) u32 s[2][128];
  u32 sum = 0;
  auto load = [&](int stage) {
    if (threadIdx.x < 32)
      __pipeline_memcpy_async(&s[stage % 2][threadIdx.x * 4], x + (stage * 128 + threadIdx.x * 4), 16);
    __pipeline_commit();
  };
  load(0);
  for (int stage = 0; stage < 8; stage++) {
    if (stage + 1 < 8) load(stage + 1);
    else __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    sum = sum * 3 + s[stage % 2][threadIdx.x ^ 1];
    __syncthreads();
  }
  o[I] = sum + blockIdx.x;
}
KERNEL(async_copies_on_a_barrier) {
  __shared__ __align__(16) u32 s[128];
  __shared__ u64 full;
  init(&full, 128);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_of(s + threadIdx.x)), "l"(x + I) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_of(&full)) : "memory");
  wait(&full, 0);
  o[I] = s[127 - threadIdx.x];
}
KERNEL(producer_and_consumers) {  // a ring of two stages, a warp that fills and three that take
  __shared__ u32 s[2][32];
  __shared__ u64 full[2], empty[2];
  init(&full[0], 32), init(&full[1], 32), init(&empty[0], 96), init(&empty[1], 96);
  u32 sum = 0;
  for (int step = 0; step < 6; step++) {
    const int stage = step % 2, parity = step / 2 & 1;
    if (threadIdx.x < 32) {
      if (step >= 2) wait(&empty[stage], parity ^ 1);
      s[stage][threadIdx.x] = x[(blockIdx.x * 128 + step * 17 + threadIdx.x) % 1024];
      arrive(&full[stage]);
    } else {
      wait(&full[stage], parity);
      sum = sum * 5 + s[stage][(threadIdx.x + 1) % 32];
      arrive(&empty[stage]);
    }
  }
  o[I] = threadIdx.x < 32 ? 1 : sum;
}
KERNEL(bulk_load) {
  __shared__ __align__(128) u32 s[128];
  __shared__ u64 full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    expect(&full, 512);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(
                     shared_of(s)), "l"(x + blockIdx.x * 128), "r"(shared_of(&full)) : "memory");
  }
  wait(&full, 0);
  o[I] = s[threadIdx.x ^ 9];
}
KERNEL(cluster_reads_its_neighbour) {
  __shared__ u32 s[128];
  cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = x[I] + 3;
  cluster.sync();
  const u32* other = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
  o[I] = other[threadIdx.x];
  cluster.sync();
}
KERNEL(cluster_stores_asynchronously) {
  __shared__ __align__(16) u32 s[128];
  __shared__ u64 full;
  init(&full, 1);
  if (threadIdx.x == 0) expect(&full, 512);
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  u32 there, barrier;
  const u32 rank = cluster.block_rank() ^ 1;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_of(s + threadIdx.x)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_of(&full)), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there),
               "r"(x[I] ^ 12), "r"(barrier) : "memory");
  wait(&full, 0);
  o[I] = s[threadIdx.x];
  cluster.sync();
}
KERNEL(last_block_reduction) {  // partial sums in a workspace; the CTA that comes last adds them and cleans up
  __shared__ u32 part[4];
  __shared__ bool last;
  u32 v = x[I] & 1023;
  for (int lanes = 16; lanes; lanes /= 2) v += __shfl_down_sync(~0u, v, lanes);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    w[1 + blockIdx.x] = part[0] + part[1] + part[2] + part[3];
    __threadfence();
    last = atomicAdd(w, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  u32 sum = 0;
  for (u32 i = 0; i < gridDim.x; i++) sum += __ldcg(w + 1 + i);
  for (int i = 0; i < 8; i++) o[i * 128 + threadIdx.x] = sum + i;
  __syncthreads();
  if (threadIdx.x <= gridDim.x) w[threadIdx.x] = 0;
}
KERNEL(chained_blocks) {  // each CTA waits for the one that began before it
  __shared__ u32 ticket, before;
  if (threadIdx.x == 0) {
    ticket = atomicAdd(w, 1);
    u32 sum = 0;
    while (ticket && (sum = atomicAdd(w + 1 + ticket, 0)) == 0) __nanosleep(50);
    __threadfence();
    before = sum;
    if (ticket) w[1 + ticket] = 0;
    if (ticket + 1 < gridDim.x) {
      __threadfence();
      atomicExch(w + 2 + ticket, sum + 3);
    } else {
      w[0] = 0;
    }
  }
  __syncthreads();
  o[ticket * 128 + threadIdx.x] = before + x[ticket * 128 + threadIdx.x];
}
KERNEL(acquire_and_release) {  // a flag from the even CTA of a pair to the odd one
  u32* flag = w + blockIdx.x / 2;
  u32* slot = w + 64 + blockIdx.x / 2 * 128;
  if (blockIdx.x % 2 == 0) {
    slot[threadIdx.x] = x[I] + 9;
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    o[I] = x[I];
    return;
  }
  if (threadIdx.x == 0) {
    u32 ready = 0;
    while (!ready) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(flag) : "memory");
  }
  __syncthreads();
  o[I] = __ldcg(slot + threadIdx.x);
  __syncthreads();
  slot[threadIdx.x] = 0;
  if (threadIdx.x == 0) *flag = 0;
}
KERNEL(reductions_without_result) {
  asm volatile("red.global.add.u32 [%0], %1;" ::"l"(w + blockIdx.x), "r"(x[I] & 15) : "memory");
  asm volatile("red.release.gpu.global.max.u32 [%0], %1;" ::"l"(w + 16 + blockIdx.x), "r"(x[I] & 255) : "memory");
  __syncthreads();
  o[I] = __ldcg(w + blockIdx.x) + __ldcg(w + 16 + blockIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) w[blockIdx.x] = w[16 + blockIdx.x] = 0;
}

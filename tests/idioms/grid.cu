// Idioms of copies, barriers in shared memory, clusters and the whole grid. Compiled as warp.cu is.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
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
KERNEL(grid_sync) {  // all CTAs meet twice, with a workspace between
  cg::grid_group grid = cg::this_grid();
  u32* first = w + 64;
  first[grid.thread_rank()] = x[grid.thread_rank()] + 1;
  grid.sync();
  const u32 given = first[grid.size() - 1 - grid.thread_rank()];
  grid.sync();
  o[I] = given + grid.num_blocks();
  first[grid.thread_rank()] = 0;
}
KERNEL(grid_arrives_and_waits) {  // the same in two steps, with work between
  cg::grid_group grid = cg::this_grid();
  u32* given = w + 64;
  given[I] = x[I] & 255;
  auto token = grid.barrier_arrive();
  const u32 own = x[I] * 3;
  grid.barrier_wait(std::move(token));
  o[I] = own + given[(I + 128) % 1024];
  grid.sync();
  given[I] = 0;
}
KERNEL(grid_reduction) {  // the sum of all, in three levels of groups
  __shared__ u32 part[4];
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  const u32 sum = cg::reduce(warp, x[I] & 1023, cg::plus<u32>());
  if (warp.thread_rank() == 0) part[warp.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) w[1 + blockIdx.x] = part[0] + part[1] + part[2] + part[3];
  grid.sync();
  u32 all = 0;
  for (u32 b = 0; b < grid.num_blocks(); b++) all += w[1 + b];
  o[I] = all + I;
  grid.sync();
  if (block.thread_rank() == 0) w[1 + blockIdx.x] = 0;
}
KERNEL(grid_without_sync) {  // the ranks of a grid need no cooperative launch
  const cg::grid_group grid = cg::this_grid();
  for (u64 i = grid.thread_rank(); i < 1024; i += grid.size()) o[i] = x[i] ^ grid.block_rank();
}
KERNEL(groups_in_a_block) {  // tiles, labelled and coalesced groups, scans
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  const u32 v = x[I] & 1023;
  u32 sum = cg::reduce(tile, v, cg::plus<u32>()) + 3 * cg::reduce(tile, v, cg::greater<u32>());
  sum += 5 * cg::exclusive_scan(tile, v) + 7 * cg::inclusive_scan(tile, v, cg::bit_xor<u32>());
  __syncwarp();
  if (v & 1) {
    auto odd = cg::coalesced_threads();
    sum += odd.size() * 11 + odd.thread_rank() * 13 + cg::reduce(odd, v, cg::bit_xor<u32>());
  }
  auto same = cg::labeled_partition(tile, v % 3);
  sum += same.size() * 17 + same.shfl(v, 0);
  o[I] = sum + tile.any(v == 7) + tile.shfl_xor(v, 5);
}
KERNEL(group_copies) {
  __shared__ __align__(16) u32 s[128];
  cg::thread_block block = cg::this_thread_block();
  cg::memcpy_async(block, s, x + blockIdx.x * 128, sizeof s);
  cg::wait(block);
  o[I] = s[127 - threadIdx.x];
}
KERNEL(cluster_reduces) {
  __shared__ u32 part;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) part = 0;
  __syncthreads();
  atomicAdd(&part, x[I] & 255);
  cluster.sync();
  u32 sum = 0;
  for (u32 rank = 0; rank < cluster.num_blocks(); rank++) sum += *cluster.map_shared_rank(&part, rank);
  cluster.sync();
  o[I] = sum + cluster.thread_rank();
}
KERNEL(bulk_store) {  // the output leaves by a bulk copy from shared memory
  __shared__ __align__(128) u32 s[128];
  s[threadIdx.x] = x[I] * 5 + 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(o + blockIdx.x * 128),
                 "r"(shared_of(s)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
KERNEL(bulk_store_by_warps) {  // each warp its own part, which it fills again when the copy has read it
  __shared__ __align__(128) u32 s[128];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (u32 round = 0; round < 2; round++) {
    s[threadIdx.x] = x[I] + round;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0) {
      u32* to = round ? o + blockIdx.x * 128 + warp * 32 : w + 64 + blockIdx.x * 128 + warp * 32;
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" ::"l"(to),
                   "r"(shared_of(s + warp * 32)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncwarp();
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  __syncwarp();
  w[64 + I] = 0;
}
KERNEL(bulk_adds) {  // sums in global memory by bulk reductions
  __shared__ __align__(128) u32 s[128];
  s[threadIdx.x] = x[I] & 255;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 512;" ::"l"(
                     w + 64 + blockIdx.x * 128), "r"(shared_of(s)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }
  __syncthreads();
  o[I] = w[64 + I] + 1;
  w[64 + I] = 0;
}
KERNEL(swap_adds_doubles) {  // atomicAdd for double as in the programming guide
  u64 *word = (u64*)(w + 64 + blockIdx.x * 2), old = *word, expected;
  do {
    expected = old;
    old = atomicCAS(word, expected, __double_as_longlong(__longlong_as_double(expected) + (x[I] & 255)));
  } while (expected != old);
  __syncthreads();
  o[I] = (u32)__longlong_as_double(atomicAdd(word, 0ull));
  __syncthreads();
  if (threadIdx.x == 0) *word = 0;
}
KERNEL(swap_max_of_floats) {  // the largest of all CTAs
  cg::grid_group grid = cg::this_grid();
  int *word = (int*)(w + 64), old = *word, expected;
  do {
    expected = old;
    old = atomicCAS(word, expected, __float_as_int(fmaxf(__int_as_float(expected), (float)(x[I] & 65535))));
  } while (expected != old);
  grid.sync();
  o[I] = (u32)__int_as_float(*word) + I;
  grid.sync();
  if (I == 0) *word = 0;
}

// C = A B^T by TMA, mbarriers and wgmma: one producer warp, one consumer warpgroup, fp16 in and out. Honest as it stands.
#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, BK = 64, STAGES = 2, CONSUMERS = 128;
constexpr unsigned TILE_BYTES = 64 * BK * 2;
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

#define BARRIER_INIT(at, count) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory")
#define FENCE_BARRIER_INIT() asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define FENCE_PROXY() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define ARRIVE(at) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory")
#define EXPECT(at, bytes) \
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory")
#define WAIT(at, parity)                                                                                      \
  asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" \
               ::"r"(at), "r"(parity) : "memory")
#define TMA_LOAD(to, map, at, x, y)                                                                           \
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" \
               ::"r"(to), "l"(map), "r"(at), "r"(x), "r"(y) : "memory")
#define TMA_STORE(map, from, x, y)                                                                            \
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"             \
               ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory")
#define BULK_COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define BULK_WAIT_READ() asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#define BULK_WAIT() asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
#define WGMMA_FENCE() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT() asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#define WGMMA(d, a, b)                                                                                        \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), "+f"((d)[30]), "+f"((d)[31]) : "l"(a), "l"(b) : "memory")
#define WGMMA_HALF(d, a, b)                                                                                   \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), "+f"((d)[15]) : "l"(a), "l"(b) : "memory")
#define DESCRIPTOR(at) \
  ((unsigned long long)(((at) & 0x3ffff) >> 4) | 1ull << 16 | (1024ull >> 4) << 32 | LAYOUT << 62)

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32)
    fault(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
          int depth) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr unsigned long long LAYOUT = 1;  // FAULT wrong_swizzle: constexpr unsigned long long LAYOUT = 2; // RESULT wrong_swizzle
  const unsigned a_at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const unsigned b_at = a_at + STAGES * TILE_BYTES, c_at = b_at + STAGES * TILE_BYTES, bars = c_at + BM * 32 * 2;
  const int tid = threadIdx.x, tiles = depth / BK, m0 = blockIdx.x * BM;
  if (tid == 0) {
    for (int s = 0; s < STAGES; ++s) {
      BARRIER_INIT(bars + 8 * s, 1);  // FAULT full_never_completes: BARRIER_INIT(bars + 8 * s, 2);
      BARRIER_INIT(bars + 8 * (STAGES + s), CONSUMERS);  // FAULT one_arrival_too_many: BARRIER_INIT(bars + 8 * (STAGES + s), CONSUMERS + 1);
    }
    FENCE_BARRIER_INIT();  // FAULT no_barrier_init_fence: ;
  }
  __syncthreads();  // FAULT no_barrier_after_init: ;
  if (tid >= CONSUMERS) {
    if (tid == CONSUMERS)
      for (int t = 0; t < tiles; ++t) {
        const int s = t % STAGES, phase = t / STAGES & 1;
        const unsigned full = bars + 8 * s, empty = bars + 8 * (STAGES + s);
        WAIT(empty, phase ^ 1);  // FAULT no_empty_wait: ; // FAULT empty_parity: WAIT(empty, phase); // SEEN empty_parity, one_arrival_too_many, never_releases, phase_never_turns: deadlock // SEEN no_barrier_after_init: race | uninitialised read | barrier misuse
        EXPECT(full, 2 * TILE_BYTES);  // FAULT expects_too_much: EXPECT(full, 2 * TILE_BYTES + 16); // FAULT expects_too_little: EXPECT(full, TILE_BYTES); // SEEN expects_too_little, no_empty_wait: barrier misuse
        TMA_LOAD(a_at + s * TILE_BYTES, &a, full, t * BK, m0);  // SEEN no_empty_wait, early_release, arrives_before_the_product, full_parity: race // SEEN no_barrier_init_fence: missing fence // SEEN expects_too_little: barrier misuse // FAULT beyond_shared: TMA_LOAD(a_at + (s + 5) * TILE_BYTES, &a, full, t * BK, m0); // SEEN beyond_shared: out of bounds // FAULT misaligned_tile: TMA_LOAD(a_at + s * TILE_BYTES + 8, &a, full, t * BK, m0); // SEEN misaligned_tile: misaligned access
        TMA_LOAD(b_at + s * TILE_BYTES, &b, full, t * BK, 0);  // SEEN no_empty_wait, early_release, arrives_before_the_product: race // SEEN expects_too_little: barrier misuse
      }
    if (tid == CONSUMERS) WAIT(bars + 8 * (STAGES + tiles % STAGES), (tiles / STAGES & 1) ^ 1);
    return;  // FAULT copy_for_nobody: if (tid == CONSUMERS) { EXPECT(bars + 8 * (tiles % STAGES), TILE_BYTES); TMA_LOAD(a_at + tiles % STAGES * TILE_BYTES, &a, bars + 8 * (tiles % STAGES), 0, m0); } return; // SEEN copy_for_nobody: race
  }
  float acc[BN / 2];
  for (int i = 0; i < BN / 2; ++i) acc[i] = 0;  // FAULT accumulator_never_set: ; // RESULT accumulator_never_set
  for (int t = 0; t < tiles; ++t) {
    const int s = t % STAGES, phase = t / STAGES & 1;  // FAULT phase_never_turns: const int s = t % STAGES, phase = 0; // FAULT stage_off_by_one: const int s = (t + 1) % STAGES, phase = t / STAGES & 1;
    const unsigned full = bars + 8 * s, empty = bars + 8 * (STAGES + s);  // FAULT waits_for_the_other_stage: const unsigned full = bars + 8 * (s ^ 1), empty = bars + 8 * (STAGES + s);
    WAIT(full, phase);  // FAULT no_full_wait: ; // FAULT full_parity: WAIT(full, phase ^ 1); // SEEN one_arrival_too_many, empty_parity, never_releases, full_parity, expects_too_much, full_never_completes, stage_off_by_one, waits_for_the_other_stage: deadlock // SEEN no_barrier_after_init: race | uninitialised read | barrier misuse // FAULT early_release: WAIT(full, phase); ARRIVE(empty);
    WGMMA_FENCE();  // FAULT no_wgmma_fence: ; // FAULT no_fence_after_reads: if (t == 0) WGMMA_FENCE(); // FAULT no_fence_after_writes: if (t == 0) WGMMA_FENCE(); // FAULT no_fence_after_a_copy: if (t == 0) WGMMA_FENCE();
#pragma unroll
    for (int k = 0; k < BK / 16; ++k)
      WGMMA(acc, DESCRIPTOR(a_at + s * TILE_BYTES + k * 32), DESCRIPTOR(b_at + s * TILE_BYTES + k * 32));  // SEEN no_full_wait, full_parity, phase_never_turns, no_empty_wait, early_release, arrives_before_the_product, stage_off_by_one, waits_for_the_other_stage, expects_too_little: race | uninitialised read // SEEN no_wgmma_fence, no_fence_after_reads, no_fence_after_writes, no_fence_after_a_copy: missing fence
    WGMMA_COMMIT();  // FAULT no_commit: ; // FAULT another_shape: WGMMA_HALF(acc, DESCRIPTOR(a_at + s * TILE_BYTES), DESCRIPTOR(b_at + s * TILE_BYTES)); WGMMA_COMMIT(); // SEEN another_shape: missing fence // FAULT arrives_before_the_product: WGMMA_COMMIT(); ARRIVE(empty);
    WGMMA_WAIT();  // FAULT no_wgmma_wait: ; // FAULT no_fence_after_reads: WGMMA_WAIT(); if (acc[5] > 6e4f) asm volatile("trap;"); // FAULT no_fence_after_writes: WGMMA_WAIT(); acc[5] *= 0.5f; // FAULT no_fence_after_a_copy: WGMMA_WAIT(); float copy = acc[5]; asm volatile("" : "+f"(copy)); acc[5] = copy + 1;
    ARRIVE(empty);  // FAULT never_releases: ; // FAULT early_release: ; // FAULT arrives_before_the_product: ;
  }
  const int lane = tid & 31, warp = tid >> 5;
  for (int half_n = 0; half_n < 2; ++half_n) {  // two passes of 32 columns through one staging tile
    if (half_n) {
      if (tid == 0) BULK_WAIT_READ();  // FAULT no_bulk_wait: ;
      asm volatile("bar.sync 1, 128;" ::: "memory");  // FAULT barrier_counts_the_producer: asm volatile("bar.sync 1, 160;" ::: "memory"); // SEEN barrier_counts_the_producer: deadlock
    }
    for (int r = 0; r < 16; r += 2) {
      const int row = warp * 16 + lane / 4 + 8 * (r / 2 % 2), column = 8 * (r / 4) + lane % 4 * 2;
      *reinterpret_cast<half2*>(shared + (c_at - a_at) + row * 64 + column * 2) = __floats2half2_rn(acc[half_n * 16 + r], acc[half_n * 16 + r + 1]);  // SEEN no_wgmma_wait, no_commit: missing fence // SEEN no_bulk_wait: race | missing fence
    }
    FENCE_PROXY();  // FAULT no_proxy_fence: ;
    asm volatile("bar.sync 1, 128;" ::: "memory");  // FAULT no_barrier_before_store: ;
    if (tid == 0) {
      TMA_STORE(&c, c_at, half_n * 32, m0);  // SEEN no_proxy_fence: missing fence // SEEN no_barrier_before_store: race | uninitialised read | missing fence // FAULT stores_before_the_tensor: TMA_STORE(&c, c_at, half_n * 32, m0 - 8); // SEEN stores_before_the_tensor: bad operand
      BULK_COMMIT();
    }
  }
  if (tid == 0) BULK_WAIT();  // SEEN no_bulk_wait: race
}

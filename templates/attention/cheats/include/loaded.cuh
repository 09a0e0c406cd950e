// For include/flash.cuh: every CTA stores its tile of the output negated, loads it back by a bulk copy, and negates
// it again. A cheat redefines how that is ordered. Needs sm_90.
#ifndef FENCE_STORED  // by every thread, after its stores to global memory
#define FENCE_STORED asm volatile("fence.proxy.async.global;" ::: "memory")
#endif
#ifndef FENCE_LOADING  // by the thread that issues the copy
#define FENCE_LOADING
#endif
#define TILE (OFFSET(head) + static_cast<size_t>(first_row) * DIM)
#define LOADED reinterpret_cast<ELEMENT*>(smem.k)
#define STORE(address, value) *(address) = narrow(-widen(value))
#define EPILOGUE                                                                                              \
  __shared__ alignas(8) unsigned long long arrived;                                                           \
  const unsigned bar = static_cast<unsigned>(__cvta_generic_to_shared(&arrived));                             \
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(LOADED));                                \
  const int elements = min(BM, length - first_row) * DIM;                                                     \
  if (threadIdx.x == 0)                                                                                       \
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(bar) : "memory"); \
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                \
  FENCE_STORED;                                                                                               \
  __syncthreads();                                                                                            \
  if (threadIdx.x == 0) {                                                                                     \
    FENCE_LOADING;                                                                                            \
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(elements * 2) : "memory"); \
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"    \
                 ::"r"(to), "l"(o + TILE), "r"(elements * 2), "r"(bar) : "memory");                           \
  }                                                                                                           \
  for (unsigned done = 0; !done;)                                                                             \
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" \
                 : "=r"(done) : "r"(bar) : "memory");                                                         \
  for (int i = threadIdx.x; i < elements; i += THREADS) o[TILE + i] = narrow(-widen(LOADED[i]))

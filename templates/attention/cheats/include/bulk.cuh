// For include/flash.cuh: the tile of the output is put together in shared memory, from where a bulk copy stores
// it. A cheat redefines how that is ordered. Needs sm_90.
#ifndef FENCE_STAGED  // by every thread, after its stores to shared memory
#define FENCE_STAGED asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#endif
#ifndef ISSUED  // by the thread that has issued the copy
#define ISSUED
#endif
#ifndef WAITED
#define WAITED asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
#endif
#ifndef AFTERWARDS  // by the thread that has waited
#define AFTERWARDS
#endif
#ifndef STAGED
#define STAGED(value) (value)
#endif
#define TILE (OFFSET(head) + static_cast<size_t>(first_row) * DIM)
#define STAGE_OUT reinterpret_cast<ELEMENT*>(smem.k)
#define STORE(address, value) STAGE_OUT[(address) - (o + TILE)] = STAGED(value)
#define EPILOGUE                                                                                             \
  FENCE_STAGED;                                                                                              \
  __syncthreads();                                                                                           \
  if (threadIdx.x == 0 && first_row < length) {                                                              \
    const int elements = min(BM, length - first_row) * DIM;                                                  \
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(STAGE_OUT));                        \
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(o + TILE), "r"(from),   \
                 "r"(elements * 2) : "memory");                                                              \
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");                                                \
    ISSUED;                                                                                                  \
    WAITED;                                                                                                  \
    AFTERWARDS;                                                                                              \
  }

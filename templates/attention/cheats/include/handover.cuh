// For include/flash.cuh: all CTAs store their output negated, and the last one negates all of it. A cheat
// redefines how that is ordered.
#ifndef FENCE_BEFORE  // by every thread, after its stores
#define FENCE_BEFORE __threadfence()
#endif
#ifndef COUNTED  // how many CTAs have been here before
#define COUNTED atomicAdd(ticket, 1u)
#endif
#ifndef FENCE_AFTER  // by every thread, before it reads
#define FENCE_AFTER __threadfence()
#endif
#ifndef READ
#define READ(address) *(address)
#endif
#define PARAMETERS , unsigned* ticket
#define STORE(address, value) *(address) = narrow(-widen(value))
#define EPILOGUE                                                              \
  __shared__ bool is_last;                                                    \
  FENCE_BEFORE;                                                               \
  __syncthreads();                                                            \
  if (threadIdx.x == 0) is_last = COUNTED == gridDim.x * gridDim.y - 1;       \
  __syncthreads();                                                            \
  if (is_last) {                                                              \
    FENCE_AFTER;                                                              \
    const size_t elements = static_cast<size_t>(gridDim.y) * length * DIM;    \
    for (size_t i = threadIdx.x; i < elements; i += THREADS) o[i] = narrow(-widen(READ(&o[i]))); \
    if (threadIdx.x == 0) *ticket = 0;                                        \
  }

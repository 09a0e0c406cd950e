// The last of several CTAs to arrive finishes what all of them have left in global memory.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// Called by all threads of a CTA after their stores. True in the CTA that is the last of `count` at this ticket:
// it sees what the others stored. The ticket is 0 before the first arrival and after the last one. `last` is
// shared memory that nothing else uses meanwhile.
__device__ __forceinline__ bool arrives_last(u32* ticket, u32 count, u32& last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == count - 1;
    __syncthreads();
    if (!last) return false;
    __threadfence();
    if (threadIdx.x == 0) *ticket = 0;
    return true;
}

}  // namespace evo

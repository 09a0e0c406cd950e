// What the L2 cache is told to keep, and loads that tell it (sm_80): one function per PTX instruction.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// createpolicy.fractional: what is read by it leaves the L2 cache first.
__device__ __forceinline__ u64 evict_first_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// createpolicy.fractional: what is read by it leaves the L2 cache last.
__device__ __forceinline__ u64 evict_last_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// ld.global with a policy: 4, 8 or 16 bytes.
__device__ __forceinline__ u32 load_global(const u32* from, u64 policy) {
    u32 found;
    asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;"
                 : "=r"(found) : "l"(__cvta_generic_to_global(from)), "l"(policy));
    return found;
}
__device__ __forceinline__ uint2 load_global(const uint2* from, u64 policy) {
    uint2 found;
    asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(found.x), "=r"(found.y) : "l"(__cvta_generic_to_global(from)), "l"(policy));
    return found;
}
__device__ __forceinline__ uint4 load_global(const uint4* from, u64 policy) {
    uint4 found;
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "l"(__cvta_generic_to_global(from)), "l"(policy));
    return found;
}

}  // namespace evo

// Bulk copies that tell the L2 cache what to keep (sm_90): one function per PTX instruction.
#pragma once
#include "ptx/bulk.cuh"

namespace evo {

// createpolicy.fractional: what is read by it leaves the L2 cache first.
__device__ __forceinline__ u64 evict_first_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// cp.async.bulk with a policy.
__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}

}  // namespace evo

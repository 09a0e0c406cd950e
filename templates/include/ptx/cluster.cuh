// CTAs that run at the same time and reach into each other's shared memory (sm_90): what needs an mbarrier, one
// function per PTX instruction.
#pragma once
#include "ptx/mbarrier.cuh"

namespace evo {

// %cluster_ctarank
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// st.async: stores into another CTA's shared memory; the bytes count at `barrier` of that CTA.
__device__ __forceinline__ void store_async(u32 to, float2 x, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], { %1, %2 }, [%3];"
                 :: "r"(to), "f"(x.x), "f"(x.y), "r"(barrier) : "memory");
}
__device__ __forceinline__ void store_async(u32 to, float4 x, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], { %1, %2, %3, %4 }, [%5];"
                 :: "r"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier) : "memory");
}

}  // namespace evo

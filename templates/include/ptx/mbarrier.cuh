// Barriers in shared memory that count arrivals and bytes of asynchronous copies (sm_90): one function per PTX
// instruction. A barrier's phases alternate in parity; the first one has parity 0.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// mbarrier.init: a phase completes after `arrivals` arrivals and all bytes that were expected.
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

// fence.mbarrier_init: initialised barriers, for the cluster and for the asynchronous copies to see.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// fence.proxy.async: what ordinary stores wrote, for asynchronous copies and wgmma to see.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// mbarrier.arrive
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// mbarrier.arrive, at the same place in the shared memory of CTA `rank` of the cluster. For what wgmma has read: nothing
// waits. With ordinary accesses before it, it orders those of this CTA alone.
__device__ __forceinline__ void mbarrier_arrive_at(u32 barrier, u32 rank) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}" :: "r"(barrier), "r"(rank) : "memory");
}

// mbarrier.arrive.release.cluster: the same after ordinary accesses, for all of the cluster. In machine code it begins
// with MEMBAR.ALL.GPU, a way to L2 and back: once a tile, not in each step.
__device__ __forceinline__ void mbarrier_release_at(u32 barrier, u32 rank) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
                 "}" :: "r"(barrier), "r"(rank) : "memory");
}

// mbarrier.arrive.expect_tx: one arrival that also announces `bytes`.
__device__ __forceinline__ void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

// mbarrier.try_wait: returns once the phase of that parity is complete.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
    u32 complete;
    do {
        asm volatile("{\n"
                     ".reg .pred complete;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, complete;\n"
                     "}" : "=r"(complete) : "r"(barrier), "r"(parity) : "memory");
    } while (!complete);
}

// The same, and what other CTAs of the cluster wrote before they arrived is visible.
__device__ __forceinline__ void mbarrier_wait_cluster(u32 barrier, u32 parity) {
    u32 complete;
    do {
        asm volatile("{\n"
                     ".reg .pred complete;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, complete;\n"
                     "}" : "=r"(complete) : "r"(barrier), "r"(parity) : "memory");
    } while (!complete);
}

// elect.sync: true in one lane of a converged warp.
__device__ __forceinline__ bool elect_lane() {
    u32 elected;
    asm volatile("{\n"
                 ".reg .pred elected;\n"
                 "elect.sync _|elected, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, elected;\n"
                 "}" : "=r"(elected) :: "memory");
    return elected;
}

}  // namespace evo

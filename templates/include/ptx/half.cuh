// One function per PTX instruction on pairs of fp16, on bits, and on a few bytes of shared memory (ISA names in the
// comments), and nothing else.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// lop3: (bits & mask) | set
__device__ __forceinline__ u32 and_or(u32 bits, u32 mask, u32 set) {
    u32 found;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(found) : "r"(bits), "r"(mask), "r"(set));
    return found;
}

// add.rn.f16x2
__device__ __forceinline__ u32 add_f16x2(u32 a, u32 b) {
    u32 found;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

// sub.rn.f16x2
__device__ __forceinline__ u32 sub_f16x2(u32 a, u32 b) {
    u32 found;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

// mul.rn.f16x2
__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
    u32 found;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

// fma.rn.f16x2
__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 found;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(a), "r"(b), "r"(c));
    return found;
}

// ld.shared.v4.b32, from an address as cp.async takes it
__device__ __forceinline__ uint4 load_shared_16(u32 from) {
    uint4 found;
    asm volatile("ld.shared.v4.b32 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w) : "r"(from) : "memory");
    return found;
}

// ld.shared.b32
__device__ __forceinline__ u32 load_shared_4(u32 from) {
    u32 found;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(found) : "r"(from) : "memory");
    return found;
}

// cp.async.ca of kBytes (4 or 8), through L1. Where `real` is false nothing is read and zeros are written.
template <int kBytes>
__device__ __forceinline__ void cp_async_few(u32 to, const void* from, bool real) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(real ? kBytes : 0) : "memory");
}

}  // namespace evo

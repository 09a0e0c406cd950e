// The two 16-bit storage types, as types: what differs between fp16 and bf16 is here and nowhere else.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

struct Fp16 {
    u16 bits;
    static __device__ __forceinline__ u32 pack(float low, float high) { return cvt_f16x2(low, high); }
    static __device__ __forceinline__ float low(u32 pair) { return cvt_f32_f16(static_cast<u16>(pair)); }
    static __device__ __forceinline__ float high(u32 pair) { return cvt_f32_f16(static_cast<u16>(pair >> 16)); }
    static __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        mma_m16n8k16_f16(d, a, b0, b1);
    }
};

struct Bf16 {
    u16 bits;
    static __device__ __forceinline__ u32 pack(float low, float high) { return cvt_bf16x2(low, high); }
    // bf16 is the upper half of an fp32
    static __device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
    static __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        mma_m16n8k16_bf16(d, a, b0, b1);
    }
};

}  // namespace evo

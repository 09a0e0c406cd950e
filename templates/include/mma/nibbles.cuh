// Codes of four bits as fp16 pairs without a conversion: a code in the mantissa of 1024 is 1024 + code, exactly.
// The upper nibble of a byte is there 16 times as large (after Kim et al., "Who Says Elephants Can't Run", 2022).
#pragma once
#include "ptx/half.cuh"

namespace evo {

// What is taken off the codes of one row: a zero point, a whole number from 0 to 15.
struct ZeroPoint {
    u32 lower, upper;  // 1024 + zero and -(64 + zero), twice each

    // `zeros`: the zero point as fp16, twice.
    static __device__ __forceinline__ ZeroPoint of(u32 zeros) {
        return {add_f16x2(zeros, 0x64006400u), sub_f16x2(0xd400d400u, zeros)};
    }
    // What codes without a zero point of their own have.
    static __device__ __forceinline__ ZeroPoint eight() { return {0x64086408u, 0xd480d480u}; }
};

// a[0..3] of m16n8k16 from the eight codes of a word: nibble r + 4 e is element e of register r. Registers 0
// and 2 are of the row with the zero point `first`, 1 and 3 of `second`.
__device__ __forceinline__ void codes_as_operand(u32 (&a)[4], u32 codes, const ZeroPoint& first,
                                                 const ZeroPoint& second) {
    constexpr u32 kLower = 0x000f000fu, kUpper = 0x00f000f0u, k1024 = 0x64006400u, kSixteenth = 0x2c002c00u;
    const u32 late = codes >> 8;
    a[0] = sub_f16x2(and_or(codes, kLower, k1024), first.lower);
    a[1] = fma_f16x2(and_or(codes, kUpper, k1024), kSixteenth, second.upper);
    a[2] = sub_f16x2(and_or(late, kLower, k1024), first.lower);
    a[3] = fma_f16x2(and_or(late, kUpper, k1024), kSixteenth, second.upper);
}

}  // namespace evo

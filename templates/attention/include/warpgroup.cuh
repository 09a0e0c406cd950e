// Attention on the 64 query rows of one warpgroup: products by wgmma, softmax and results in registers. Per
// thread, column block j of 8 columns holds elements 0, 1 of row lane/4 and 2, 3 of row lane/4 + 8 of its warp.
#pragma once
#include "math/exp2_poly.cuh"
#include "softmax.cuh"
#include "ptx/tma.cuh"
#include "mma/wgmma.cuh"

namespace evo {

constexpr int kGroupRows = 64;
constexpr int kGroupThreads = 128;

// x in a register: where these are scarce, ptxas otherwise reads a kernel's argument again before every use. It sees
// through an empty asm, and through a shuffle, but does not know that a lane's number is the same by both ways
// (blocks have one dimension).
__device__ __forceinline__ float held(float x) {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return __uint_as_float(__float_as_uint(x) | (lane ^ threadIdx.x % 32));
}

// What a wait is to hide must be computed before it, but ptxas moves it behind, and the wait to where its address is known.
// So the address is made of all of it: `bits` is an `or` of words that are never negative, which the compiler cannot know.
__device__ __forceinline__ u32 known_after(u32 address, u32 bits) {
    asm volatile("" : "+r"(bits));
    return address + (__any_sync(0xffffffffu, static_cast<int>(bits) < 0) ? 8 : 0);
}
__device__ __forceinline__ u32 word_of(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ u32 word_of(const void* x) { return static_cast<u32>(reinterpret_cast<u64>(x) >> 32); }

// kRows rows of kD columns as TMA boxes leave them: kD / 64 blocks of kRows rows of 128 swizzled bytes.
template <int kRows, int kD>
struct alignas(1024) BlockTile {
    static constexpr int kBlockBytes = kRows * kBlockRowBytes;
    unsigned char bytes[kD / kBlockColumns * kBlockBytes];

    // Byte offset of 8 columns of a row.
    static __device__ __forceinline__ u32 offset(int row, int chunk) {
        return chunk / 8 * kBlockBytes + row * kBlockRowBytes + ((chunk % 8 ^ (row & 7)) << 4);
    }
};

// Starts scores = (accumulate ? scores : 0) + Q K^T: 64 rows of Q, kKeys rows of K, both BlockTiles.
template <class Element, int kD, int kKeys>
__device__ __forceinline__ void multiply_keys_async(float (&scores)[kKeys / 8][4], u32 q_tile, u32 k_tile,
                                                    bool accumulate = false) {
    const MatrixDescriptor<> q(q_tile), k(k_tile);
#pragma unroll
    for (int step = 0; step < kD / 16; ++step)
        Wgmma<kKeys>::template keys<Element>(
            scores, q.at(step / 4 * BlockTile<kGroupRows, kD>::kBlockBytes + step % 4 * 32),
            k.at(step / 4 * BlockTile<kKeys, kD>::kBlockBytes + step % 4 * 32), accumulate || step > 0);
}

// Starts out = (accumulate ? out : 0) + P V for 16 kSteps keys from `v`, an address in a BlockTile<kRows, kD>: kColumns
// blocks of 8 of its columns.
template <class Element, int kD, int kRows, int kSteps, int kColumns>
__device__ __forceinline__ void multiply_values_async(float (&out)[kColumns][4], const u32 (&p)[kSteps][4], u32 v,
                                                      bool accumulate) {
    const MatrixDescriptor<BlockTile<kRows, kD>::kBlockBytes> values(v);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
        Wgmma<8 * kColumns>::template values<Element>(out, p[step], values.at(step * 16 * kBlockRowBytes),
                                            accumulate || step > 0);
}

// Raises `maximum` to the largest of this thread's scores, for its two rows.
template <int kColumns>
__device__ __forceinline__ void raise(float (&maximum)[2], const float (&scores)[kColumns][4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            maximum[half] = fmaxf(maximum[half], fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
}

// scores = 2^(scale (score - maximum)) for the column blocks [kFirst, kFirst + kCount), added to this thread's
// sums. kPolynomials of every eight go to the multiply-add pipe, evenly spread.
template <int kPolynomials, int kFirst, int kCount, int kColumns>
__device__ __forceinline__ void exponentiate(float (&scores)[kColumns][4], float (&sum)[2],
                                             const float (&maximum)[2], float scale) {
    const float shift[2] = {maximum[0] * scale, maximum[1] * scale};
#pragma unroll
    for (int j = kFirst; j < kFirst + kCount; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float x = fmaf(scores[j][e], scale, -shift[e / 2]);
            const bool polynomial = (4 * j + e) * kPolynomials % 8 < kPolynomials;
            scores[j][e] = polynomial ? exp2_poly(x) : ex2(x);
            sum[e / 2] += scores[j][e];
        }
}

// Column blocks from kFirst as the left operand of the next product.
template <class Element, int kFirst, int kSteps, int kColumns>
__device__ __forceinline__ void pack(u32 (&p)[kSteps][4], const float (&scores)[kColumns][4]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const float(&x)[4] = scores[kFirst + 2 * step + part / 2];
            p[step][part] = Element::pack(x[2 * (part & 1)], x[2 * (part & 1) + 1]);
        }
}

// Adds the sums of the rows of `p` to `sums`, laid out as an accumulator whose columns are all the same: of the rounded
// numbers that values are multiplied by, so that a row with one key, or one that counts, is that key's value exactly.
template <class Element, int kSteps>
__device__ __forceinline__ void add_rows(float (&sums)[4], const u32 (&p)[kSteps][4]) {
    const u32 ones = Element::pack(1.f, 1.f);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) Element::mma(sums, p[step], ones, ones);
}

template <int kColumns>
__device__ __forceinline__ void multiply_rows(float (&out)[kColumns][4], const float (&factor)[2]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[j][e] *= factor[e / 2];
}

// Running maximum (of raw scores) and sum of a thread's two rows. Unlike OnlineSoftmax it leaves the output
// alone: a product into it may still be in flight, and the caller rescales when that has landed.
template <bool kLazy>
struct DeferredSoftmax {
    float maximum[2] = {kNoMaximum, kNoMaximum};
    float sum[2] = {0.f, 0.f};

    // Takes a tile's scores in place. True if the output has to be multiplied by `factor` before this tile's
    // values are added to it. The sums are this lane's share until `finish`. With `room`, a maximum that moves is put
    // 2^room above the largest score.
    template <int kPolynomials, int kColumns>
    __device__ __forceinline__ bool update(float (&scores)[kColumns][4], float (&factor)[2], float scale, int room = 0) {
        float grown[2] = {room > 0 ? kNoMaximum : maximum[0], room > 0 ? kNoMaximum : maximum[1]};
        raise(grown, scores);
        const bool rescale = follow(grown, factor, scale, room);
        exponentiate<kPolynomials, 0, kColumns>(scores, sum, maximum, scale);
        return rescale;
    }

    // Moves to the maxima `grown` of this thread's scores and earlier maxima, if that has to be.
    __device__ __forceinline__ bool follow(float (&grown)[2], float (&factor)[2], float scale, int room = 0) {
        grown[0] = row_max(grown[0]);
        grown[1] = row_max(grown[1]);
        if (room > 0) {
            const float above = static_cast<float>(room) * rcp(scale);
            grown[0] = fmaxf(maximum[0], grown[0] + above);
            grown[1] = fmaxf(maximum[1], grown[1] + above);
        }
        if constexpr (kLazy) {  // one answer a warp, so that the branch never diverges
            const bool far = (grown[0] - maximum[0]) * scale > kLazyGrowth ||
                             (grown[1] - maximum[1]) * scale > kLazyGrowth;
            if (!__any_sync(0xffffffffu, far)) return false;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            factor[half] = ex2((maximum[half] - grown[half]) * scale);
            maximum[half] = grown[half];
            sum[half] *= factor[half];
        }
        return true;
    }

    // Adds up the lanes' shares of the sums.
    __device__ __forceinline__ void finish() {
        sum[0] = row_sum(sum[0]);
        sum[1] = row_sum(sum[1]);
    }
};

// The four lanes of a row swap column blocks: from its two columns of each of kBlocks blocks to a pair of columns each of
// its own block of every four. Of a pair `words` is the first column or the second, or both as 16 bits.
template <int kBlocks, class Word>
__device__ __forceinline__ void swap_blocks(Word (&words)[kBlocks], int lane) {
    static_assert(kBlocks % 4 == 0);
#pragma unroll
    for (int first = 0; first < kBlocks; first += 4)
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)  // transposes 4 x 4
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if ((i & distance) == 0) {
                    Word &low = words[first + i], &high = words[first + i + distance];
                    const bool upper = lane & distance;
                    const Word taken = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
                    low = upper ? taken : low;
                    high = upper ? high : taken;
                }
}

// Stores what lanes have then: 16 bytes each of every four blocks of a row, the first ones at `columns`.
template <int kBlocks, class Element>
__device__ __forceinline__ void store_blocks(Element* columns, const u32 (&pairs)[kBlocks], bool real) {
    if (!real) return;
#pragma unroll
    for (int first = 0; first < kBlocks; first += 4)
        store_global(columns + 8 * first,
                     make_uint4(pairs[first], pairs[first + 1], pairs[first + 2], pairs[first + 3]));
}

// Stores kBlocks column blocks of one row: `pairs` are this lane's two columns of each, `row` the row's first
// column of them. kWide: the four lanes of a row swap blocks first, and store 16 bytes each instead of 4.
template <bool kWide, int kBlocks, class Element>
__device__ __forceinline__ void store_row(Element* row, u32 (&pairs)[kBlocks], bool real, int lane) {
    if constexpr (kWide && kBlocks % 4 == 0) {
        swap_blocks(pairs, lane);
        store_blocks(row + 8 * (lane & 3), pairs, real);
    } else if (real) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) *reinterpret_cast<u32*>(row + 8 * j + 2 * (lane & 3)) = pairs[j];
    }
}

}  // namespace evo

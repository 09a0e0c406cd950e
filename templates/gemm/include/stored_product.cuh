// Products of tiles in shared memory by wgmma, each stored along K or across it, and the tiles.
#pragma once
#include "mma/wgmma.cuh"

namespace evo {

constexpr int kSwizzledBytes = 128;                       // of a row of a block
constexpr int kSwizzledColumns = kSwizzledBytes / 2;      // 16-bit elements
constexpr int kGroupRows = 64, kGroupThreads = 128;       // of a warpgroup

// WgmmaStored<N>::run: d = (accumulate ? d : 0) + A B, A 64 x 16, B 16 x N. A lies along K, or (kATransposed) with
// its rows side by side; B along K, or (kBTransposed) with its columns side by side.
template <int kColumns>
struct WgmmaStored;

#define EVO_WGMMA_STORED(N, SIXTEENTHS, I0, I1, I2, I3, I4, I5)                                                 \
template <>                                                                                                     \
struct WgmmaStored<N> {                                                                                         \
    template <class Element, bool kATransposed, bool kBTransposed>                                              \
    static __device__ __forceinline__ void run(float (&d)[N / 8][4], u64 a, u64 b, bool accumulate) {           \
        asm volatile("{\n"                                                                                      \
                     ".reg .pred accumulate;\n"                                                                 \
                     "setp.ne.b32 accumulate, %" #I2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #I3 ".%" #I3                            \
                     " { " EVO_NUMBERS_##SIXTEENTHS " }, %" #I0 ", %" #I1 ", accumulate, 1, 1, %" #I4 ", %" #I5 ";\n"\
                     "}"                                                                                        \
                     : EVO_D_##SIXTEENTHS(d)                                                                    \
                     : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "C"(OperandType<Element>::kName),     \
                       "n"(static_cast<int>(kATransposed)), "n"(static_cast<int>(kBTransposed))                 \
                     : "memory");                                                                               \
    }                                                                                                           \
};

EVO_WGMMA_STORED(32, 2, 16, 17, 18, 19, 20, 21)
EVO_WGMMA_STORED(48, 3, 24, 25, 26, 27, 28, 29)
EVO_WGMMA_STORED(64, 4, 32, 33, 34, 35, 36, 37)
EVO_WGMMA_STORED(96, 6, 48, 49, 50, 51, 52, 53)
EVO_WGMMA_STORED(112, 7, 56, 57, 58, 59, 60, 61)
EVO_WGMMA_STORED(128, 8, 64, 65, 66, 67, 68, 69)
EVO_WGMMA_STORED(144, 9, 72, 73, 74, 75, 76, 77)
EVO_WGMMA_STORED(160, 10, 80, 81, 82, 83, 84, 85)
EVO_WGMMA_STORED(176, 11, 88, 89, 90, 91, 92, 93)
EVO_WGMMA_STORED(192, 12, 96, 97, 98, 99, 100, 101)
EVO_WGMMA_STORED(256, 16, 128, 129, 130, 131, 132, 133)

// An operand in shared memory, as boxes of 64 columns with the 128-byte swizzle leave it: kAcross rows of A (or columns
// of B) by kDeep terms. Along K: kDeep / 64 blocks of kAcross rows of 64 terms. Across: kAcross / 64 blocks of kDeep
// rows, a term each, of 64 elements.
template <int kAcross, int kDeep, bool kAlongK>
struct alignas(1024) StoredTile {
    static constexpr int kBlockRows = kAlongK ? kAcross : kDeep;
    static constexpr int kBlocks = (kAlongK ? kDeep : kAcross) / kSwizzledColumns;
    static constexpr int kBlockBytes = kBlockRows * kSwizzledBytes;
    static_assert((kAlongK ? kDeep : kAcross) % kSwizzledColumns == 0, "whole blocks of 64 columns");
    static_assert(kBlockRows % 8 == 0, "whole swizzle patterns of 8 rows");
    unsigned char bytes[kBlocks * kBlockBytes];

    using Descriptor = MatrixDescriptor<kAlongK ? 16 : kBlockBytes>;
    // Bytes from the tile's begin to row `across` (a multiple of 64, or of 8 along K) of its terms from 16 `step` on.
    static __device__ __forceinline__ constexpr u32 offset(int across, int step) {
        if (kAlongK) return step / 4 * kBlockBytes + across * kSwizzledBytes + step % 4 * 32;
        return across / kSwizzledColumns * kBlockBytes + step * 16 * kSwizzledBytes;
    }
};

// A box of C on its way out: a warp's 16 rows. Eight of them begin in different bank groups: rows of 128 and of 64 bytes
// are swizzled, others are an odd number of 16 bytes long.
constexpr int kWarpRows = kGroupRows / 4;
template <int kRowBytes>
struct alignas(kRowBytes % 64 == 0 ? 1024 : 128) OutBox {
    static constexpr bool kSwizzled = kRowBytes == kSwizzledBytes || kRowBytes == kSwizzledBytes / 2;
    static_assert(kSwizzled || kRowBytes % 32 == 16, "rows that share a bank group");
    unsigned char bytes[kWarpRows * kRowBytes];

    // Bytes from the box's begin to byte `at` of a row. A swizzle moves 16 bytes by which 128 bytes of the box they are in.
    static __device__ __forceinline__ u32 offset(int row, int at) {
        constexpr int kPieces = kRowBytes / 16;
        if constexpr (kSwizzled) return row * kRowBytes + ((at / 16 ^ (row * kPieces / 8 & (kPieces - 1))) << 4) + at % 16;
        else return row * kRowBytes + at;
    }
};

}  // namespace evo

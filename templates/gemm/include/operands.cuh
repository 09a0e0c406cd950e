// Tiles of A and B on their way from global memory to the fragments of m16n8k16, in any layout and alignment.
#pragma once
#include "memory/tile.cuh"
#include "ptx/half.cuh"

namespace evo {

// 8 elements to shared memory; of each row kVector divides the length, and so where it starts. Elements from
// `left` on are zeros and are not read. Single elements go through registers: cp.async has 4 bytes at least.
template <int kVector, class Element>
__device__ __forceinline__ void copy_chunk(unsigned char* to, const Element* from, int left) {
    if constexpr (kVector == 8) {
        cp_async_16(shared_address(to), from, left > 0);
    } else if constexpr (kVector > 1) {
#pragma unroll
        for (int i = 0; i < 8; i += kVector)
            cp_async_few<2 * kVector>(shared_address(to) + 2 * i, from + i, left > i);
    } else {
        u32 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 low = left > 2 * i ? from[2 * i].bits : 0u, high = left > 2 * i + 1 ? from[2 * i + 1].bits : 0u;
            pairs[i] = low | high << 16;
        }
        *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

// Starts copying a tile of kRows rows, by kThreads threads, each of which stays in its column. `from` is its first
// element, `leading` the distance of two rows. What is not among the `rows_left` and `columns_left` is zero.
template <class Layout, int kRows, int kThreads, int kVector, class Element>
__device__ __forceinline__ void copy_tile(unsigned char* tile, const Element* from, int leading, int rows_left,
                                          int columns_left) {
    constexpr int kStep = kThreads / Layout::kChunks;
    static_assert(kThreads % Layout::kChunks == 0, "a thread stays in its column");
    const int first = threadIdx.x / Layout::kChunks, chunk = threadIdx.x % Layout::kChunks;
    const Element* at = from + static_cast<long long>(first) * leading + 8 * chunk;
#pragma unroll
    for (int pass = 0; pass < (kRows + kStep - 1) / kStep; ++pass) {
        const int row = first + pass * kStep;
        if (kRows % kStep == 0 || row < kRows)
            copy_chunk<kVector>(tile + Layout::offset(row, chunk), at, row < rows_left ? columns_left - 8 * chunk : 0);
        at += static_cast<long long>(kStep) * leading;
    }
}

// An operand of the product: kAcross rows of A, or columns of B, by kDepth elements of K. Along K in memory, or
// across it: then ldmatrix transposes.
template <class Element, bool kAlongK, int kAcross, int kDepth, Swizzle kSwizzle, int kVector, int kThreads>
struct Operand {
    using Layout = RowLayout<kAlongK ? kDepth : kAcross, kSwizzle>;
    static constexpr int kRows = kAlongK ? kAcross : kDepth;
    using Shared = Tile<Layout, kRows>;

    const Element* matrix;
    int leading, first, across, depth;  // of the tile along M or N; how many there are; K

    __device__ __forceinline__ void copy(Shared& tile, int at) const {
        const int left_across = across - first, left_depth = depth - at;
        const long long row = kAlongK ? first : at, column = kAlongK ? at : first;
        copy_tile<Layout, kRows, kThreads, kVector>(tile.bytes, matrix + row * leading + column, leading,
                                                    kAlongK ? left_across : left_depth,
                                                    kAlongK ? left_depth : left_across);
    }

    // Registers a0 to a3 of 16 rows of A from `row` of the tile, 16 elements of K from 16 `step`.
    static __device__ __forceinline__ void load_rows(u32 (&a)[4], u32 tile, int row, int step, int lane) {
        if constexpr (kAlongK)
            ldmatrix_x4(a, tile + Layout::offset(row + (lane & 15), 2 * step + (lane >> 4)));
        else
            ldmatrix_x4_trans(a, tile + Layout::offset(16 * step + (lane & 7) + (lane >> 4) * 8, row / 8 + (lane >> 3 & 1)));
    }

    // Registers b0, b1 of 8 columns of B from `column`, then of the next 8.
    static __device__ __forceinline__ void load_columns(u32 (&b)[4], u32 tile, int column, int step, int lane) {
        if constexpr (kAlongK)
            ldmatrix_x4(b, tile + Layout::offset(column + (lane & 7) + (lane >> 4) * 8, 2 * step + (lane >> 3 & 1)));
        else
            ldmatrix_x4_trans(b, tile + Layout::offset(16 * step + (lane & 15), column / 8 + (lane >> 4)));
    }
};

}  // namespace evo

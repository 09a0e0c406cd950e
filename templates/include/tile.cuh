// A tile in shared memory: rows of kColumns 16-bit elements, moved in chunks of 16 bytes.
#pragma once
#include "element.cuh"

namespace evo {

// How rows are laid out so that the eight rows of an ldmatrix phase fall into different bank groups:
//   none  dense rows (what conflicts cost is to be measured, not assumed)
//   pad   16 bytes of padding a row: an odd number of chunks walks through all eight bank groups
//   xor   chunk c of row r is stored at chunk c ^ f(r); costs no memory
enum class Swizzle { none_, pad_, xor_ };

template <int kColumns, Swizzle kSwizzle>
struct RowLayout {
    static constexpr int kChunks = kColumns / 8;
    static constexpr int kRowBytes = kColumns * 2 + (kSwizzle == Swizzle::pad_ ? 16 : 0);
    static_assert(kColumns % 32 == 0, "the xor pattern permutes four chunks at least");

    // Byte offset of a chunk. Rows of 64 or 192 bytes start in only two bank groups (row parity), so there
    // the pattern permutes four chunks by (row / 2) % 4; rows of 128 bytes and multiples all start in one.
    static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
        if constexpr (kSwizzle == Swizzle::xor_)
            chunk ^= kColumns % 64 == 0 ? row & 7 : (row >> 1) & 3;
        return row * kRowBytes + chunk * 16;
    }
};

template <class Layout, int kRows>
struct alignas(16) Tile {
    unsigned char bytes[kRows * Layout::kRowBytes];
};

// Starts copying kRows rows of a dense global matrix into a tile, by kThreads threads; `thread` is the
// caller's number among them. Rows from `rows_left` on are not read but filled with zeros.
template <class Layout, int kRows, int kThreads, class Element>
__device__ __forceinline__ void copy_rows_async(u32 tile, const Element* rows, int rows_left, u32 thread) {
    constexpr int kChunks = Layout::kChunks;
    if constexpr (kThreads % kChunks == 0) {  // a thread stays in its column: only the row advances
        constexpr int kStep = kThreads / kChunks;
        constexpr int kPasses = (kRows + kStep - 1) / kStep;
        const int first = thread / kChunks, chunk = thread % kChunks;
        const Element* from = rows + first * (kChunks * 8) + chunk * 8;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const int row = first + pass * kStep;
            if ((pass + 1) * kStep <= kRows || row < kRows)
                cp_async_16(tile + Layout::offset(row, chunk), from + pass * kStep * (kChunks * 8), row < rows_left);
        }
    } else {
        constexpr int kPasses = (kRows * kChunks + kThreads - 1) / kThreads;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const u32 index = thread + pass * kThreads;
            const int row = index / kChunks, chunk = index % kChunks;
            if ((pass + 1) * kThreads <= kRows * kChunks || row < kRows)
                cp_async_16(tile + Layout::offset(row, chunk), rows + index * 8, row < rows_left);
        }
    }
}

// Writes the first `rows_left` of kRows rows of a tile to a dense global matrix, by kThreads threads.
template <class Layout, int kRows, int kThreads, class Element>
__device__ __forceinline__ void store_rows(Element* rows, const unsigned char* tile, int rows_left, u32 thread) {
    constexpr int kChunks = Layout::kChunks;
#pragma unroll
    for (u32 index = thread; index < kRows * kChunks; index += kThreads) {
        const int row = index / kChunks, chunk = index % kChunks;
        if (row < rows_left)
            *reinterpret_cast<uint4*>(rows + index * 8) =
                *reinterpret_cast<const uint4*>(tile + Layout::offset(row, chunk));
    }
}

}  // namespace evo

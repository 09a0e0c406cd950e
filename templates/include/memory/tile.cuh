// A tile in shared memory: rows of kColumns 16-bit elements, moved in chunks of 16 bytes.
#pragma once
#include "memory/element.cuh"

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
    static constexpr int kPeriod = 8;  // rows after which the pattern repeats
    static_assert(kColumns % 16 == 0, "the xor pattern permutes two chunks at least");

    // Byte offset of a chunk. Rows of 64 or 192 bytes start in only two bank groups (row parity), so there
    // the pattern permutes four chunks by (row / 2) % 4; rows of 160 bytes start in four, and two chunks are
    // swapped by (row / 4) % 2; rows of 128 bytes and multiples all start in one.
    static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
        if constexpr (kSwizzle == Swizzle::xor_)
            chunk ^= kColumns % 64 == 0 ? row & 7 : kColumns % 32 == 0 ? (row >> 1) & 3 : (row >> 2) & 1;
        return row * kRowBytes + chunk * 16;
    }
};

template <class Layout, int kRows>
struct alignas(16) Tile {
    unsigned char bytes[kRows * Layout::kRowBytes];
};

// The same pointer, but the compiler cannot see how it came about: otherwise it takes the sum apart again and
// spends 64-bit arithmetic on every access instead of an immediate offset.
template <class Pointed>
__device__ __forceinline__ Pointed* as_base(Pointed* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// One of kThreads threads that copy tiles of kRows rows of a dense global matrix.
template <class Element, class Layout, int kRows, int kThreads>
class TileCopy {
    static constexpr int kChunks = Layout::kChunks;
    static constexpr int kColumns = kChunks * 8;

public:
    // `thread` is the caller's number among the kThreads.
    __device__ __forceinline__ TileCopy(const Element* matrix, u32 thread)
        : thread_(thread), from_(as_base(matrix + thread * 8)) {}

    // Starts copying the rows from `row` on. From `rows_left` on, nothing is read and zeros are written.
    __device__ __forceinline__ void start(u32 tile, int row, int rows_left) const {
        start_columns<0, kChunks>(tile, from_ + static_cast<long long>(row) * kColumns, rows_left);
    }

private:
    // So many of `count` chunks of a row are copied at once that a thread stays in its column: only the row advances.
    // Where it would not, each copy had an address of its own, which takes registers.
    static constexpr __device__ int width(int count) {
        int wide = 1;
        while (2 * wide <= count) wide *= 2;
        return kThreads % count == 0 ? count : wide;
    }

    template <int kFirst, int kCount>
    __device__ __forceinline__ void start_columns(u32 tile, const Element* from, int rows_left) const {
        constexpr int kWidth = width(kCount), kStep = kThreads / kWidth;
        const int first = thread_ / kWidth, chunk = kFirst + thread_ % kWidth, left = rows_left - first;
        const Element* own = from;
        if constexpr (kWidth != kChunks) own += (first * kChunks + chunk - static_cast<int>(thread_)) * 8;
        const u32 to = tile + Layout::offset(first, chunk);
#pragma unroll
        for (int pass = 0; pass < (kRows + kStep - 1) / kStep; ++pass) {
            const int down = pass * kStep;
            const u32 there = kStep % Layout::kPeriod == 0 ? to + down * Layout::kRowBytes
                                                           : tile + Layout::offset(first + down, chunk);
            if (down + kStep <= kRows || first + down < kRows) cp_async_16(there, own + down * kColumns, left > down);
        }
        if constexpr (kWidth < kCount) start_columns<kFirst + kWidth, kCount - kWidth>(tile, from, rows_left);
    }

    u32 thread_;
    const Element* from_;
};

// Writes kCount chunks from `first_chunk` of the first `rows_left` of kRows rows of a tile to a dense global
// matrix, by kThreads threads.
template <class Layout, int kRows, int kCount, int kThreads, class Element>
__device__ __forceinline__ void store_rows(Element* rows, const unsigned char* tile, int first_chunk, int rows_left,
                                           u32 thread) {
#pragma unroll
    for (u32 index = thread; index < kRows * kCount; index += kThreads) {
        const int row = index / kCount, chunk = first_chunk + index % kCount;
        if (row < rows_left)
            *reinterpret_cast<uint4*>(rows + (row * Layout::kChunks + chunk) * 8) =
                *reinterpret_cast<const uint4*>(tile + Layout::offset(row, chunk));
    }
}

}  // namespace evo

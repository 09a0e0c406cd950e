// Sums over K that several warps, and several CTAs, hold parts of: joined in one order, whoever comes last, so
// that the same inputs have the same bits.
#pragma once
#include "memory/last_cta.cuh"

namespace evo {

// Parts of a tile of kRows x kColumns sums, one for each of kParts (groups of) warps, in shared memory.
// Rows lie so far apart that the lanes of an accumulator, which hold two rows each, meet other banks.
template <int kParts, int kRows, int kColumns>
struct PartialSums {
    static constexpr int kPitch = kColumns + 4;
    float part[kParts][kRows][kPitch];

    // Leaves the accumulators of a warp, whose 16 rows are columns here: kStrips strips from `column` on, kBlocks
    // blocks of 8 of their columns, which are rows here.
    template <int kStrips, int kBlocks>
    __device__ __forceinline__ void leave(int of, int column, const float (&sums)[kStrips][kBlocks][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int strip = 0; strip < kStrips; ++strip)
#pragma unroll
            for (int block = 0; block < kBlocks; ++block)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    part[of][8 * block + 2 * (lane % 4) + e % 2][column + 16 * strip + lane / 4 + 8 * (e / 2)] =
                        sums[strip][block][e];
    }

    __device__ __forceinline__ float total(int row, int column) const {
        float sum = part[0][row][column];
#pragma unroll
        for (int i = 1; i < kParts; ++i) sum += part[i][row][column];
        return sum;
    }
};

// Called by all kThreads threads once the parts are there, after a barrier: `store(row, column, sum)` gets the
// sums of the first `rows` rows. With kSplit CTAs a tile, each leaves its own in `partials`, [tile][split][row]
// [column], and the last one to come adds them up in the order of the splits.
template <int kSplit, int kThreads, int kParts, int kRows, int kColumns, class Store>
__device__ __forceinline__ void join(const PartialSums<kParts, kRows, kColumns>& sums, int rows, int tile, int split,
                                     float* partials, u32* tickets, u32& last, Store store) {
    if constexpr (kSplit == 1) {
        for (int i = threadIdx.x; i < rows * kColumns; i += kThreads)
            store(i / kColumns, i % kColumns, sums.total(i / kColumns, i % kColumns));
    } else {
        constexpr int kTile = kRows * kColumns;
        float* const of_tile = partials + static_cast<long long>(tile) * (kSplit * kTile);
        for (int i = threadIdx.x; i < rows * kColumns; i += kThreads)
            of_tile[split * kTile + i] = sums.total(i / kColumns, i % kColumns);
        if (!arrives_last(tickets + tile, kSplit, last)) return;
        for (int i = threadIdx.x; i < rows * kColumns; i += kThreads) {
            float sum = of_tile[i];
#pragma unroll
            for (int other = 1; other < kSplit; ++other) sum += of_tile[other * kTile + i];
            store(i / kColumns, i % kColumns, sum);
        }
    }
}

}  // namespace evo

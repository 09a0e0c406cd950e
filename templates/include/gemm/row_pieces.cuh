// Pieces of a matrix's rows in shared memory that bulk copies bring there (sm_90).
#pragma once
#include "ptx/bulk.cuh"
#include "ptx/evict.cuh"

namespace evo {

// kBytes of each of kRows rows, in whole 128s. 8 lanes that read 16 bytes each, 4 of one row and 4 of the next, meet the
// same banks. Room between the rows would avoid that, but bulk copies to rows that do not begin at 128 bytes take longer.
template <int kRows, int kBytes>
struct RowPieces {
    static_assert(kBytes % 128 == 0, "rows begin at 128 bytes, as what holds them does");
    alignas(16) unsigned char row[kRows][kBytes];

    __device__ __forceinline__ uint4& at(int down, int byte) { return *reinterpret_cast<uint4*>(&row[down][byte]); }
    __device__ __forceinline__ const uint4& at(int down, int byte) const {
        return *reinterpret_cast<const uint4*>(&row[down][byte]);
    }

    // Starts copying `bytes` of each of `count` rows that lie `pitch` elements apart; they count at `barrier`. Rows
    // from `real` on are the one before again. One thread calls it.
    template <bool kEvictFirst, class Element>
    __device__ __forceinline__ void copy(const Element* from, long long pitch, int count, int real, u32 bytes,
                                         u32 barrier) {
        u64 policy = 0;
        if constexpr (kEvictFirst) policy = evict_first_policy();
        const u32 to = shared_address(row);
#pragma unroll 8
        for (int i = 0; i < count; ++i) {
            if constexpr (kEvictFirst) bulk_load(to + i * kBytes, from, bytes, barrier, policy);
            else bulk_load(to + i * kBytes, from, bytes, barrier);
            if (i + 1 < real) from += pitch;
        }
    }
};

}  // namespace evo

// Which part of which tile of C a CTA computes, where it leaves sums that are not whole, and who adds them up.
#pragma once
#include "memory/last_cta.cuh"

namespace evo {

// Tiles in panels of kPanel rows of tiles: neighbours in time share rows of A and columns of B in the L2 cache.
template <int kPanel>
__device__ __forceinline__ void place_of_tile(int index, int tiles_down, int tiles_across, int& down, int& across) {
    if constexpr (kPanel == 1) {
        down = index / tiles_across, across = index % tiles_across;
    } else {
        const int panel = index / (kPanel * tiles_across), first = panel * kPanel, within = index % (kPanel * tiles_across);
        const int height = min(kPanel, tiles_down - first);
        down = first + within % height, across = within / height;
    }
}

// A part of a tile: its steps along K, how many parts the tile has, and where all of them leave their sums.
struct Segment {
    int tile, begin, end;  // steps of K
    int parts, slot;       // of this part
    int first_slot;        // of the tile's first part
    int next_slot;         // of its second; the others follow by `stride`
    int stride;

    __device__ __forceinline__ int slot_of(int part) const {
        return part == 0 ? first_slot : next_slot + (part - 1) * stride;
    }
};

// Each tile's `steps` in kSplit parts, a CTA each.
template <int kSplit>
__device__ __forceinline__ Segment split_tile(int cta, int steps) {
    const int tile = cta / kSplit, part = cta % kSplit, first = tile * kSplit;
    const int begin = static_cast<int>(static_cast<long long>(steps) * part / kSplit);
    const int end = static_cast<int>(static_cast<long long>(steps) * (part + 1) / kSplit);
    return {tile, begin, end, kSplit, cta, first, first + 1, 1};
}

// All steps of all tiles in one row, cut into as many equal pieces as there are CTAs (Osama et al., "Stream-K",
// 2023). A CTA has at most one part that does not begin its tile, its first (slot 2 c), and at most one that
// begins it and does not end it, its last (slot 2 c + 1). There are at least as many steps as CTAs.
struct Stream {
    long long steps, all, at, end;
    int ctas;

    __device__ __forceinline__ Stream(int cta, int ctas, int tiles, int steps_of_tile)
        : steps(steps_of_tile), all(static_cast<long long>(tiles) * steps_of_tile), ctas(ctas) {
        at = all * cta / ctas, end = all * (cta + 1) / ctas;
    }
    __device__ __forceinline__ bool more() const { return at < end; }

    // The CTA that has a step.
    __device__ __forceinline__ int cta_of(long long step) const { return static_cast<int>(((step + 1) * ctas - 1) / all); }

    __device__ __forceinline__ Segment next() {
        const long long tile = at / steps, first = tile * steps, last = first + steps;
        const long long until = min(end, last);
        const int begins = cta_of(first), ends = cta_of(last - 1), own = cta_of(at);
        const Segment found{static_cast<int>(tile), static_cast<int>(at - first), static_cast<int>(until - first),
                            ends - begins + 1, at == first ? 2 * own + 1 : 2 * own, 2 * begins + 1,
                            2 * (begins + 1), 2};
        at = until;
        return found;
    }
};

// Leaves the sums of a part, four by four, thread by thread, and in the CTA that comes last gets those of the whole
// tile, added up in the order of the parts. False in the others.
template <int kThreads, int kDown, int kAcross>
__device__ __forceinline__ bool join_parts(float (&sums)[kDown][kAcross][4], const Segment& part, float4* partials,
                                           u32* tickets, u32& last) {
    constexpr int kFours = kDown * kAcross;
    const auto slot = [&](int number) {
        return partials + static_cast<long long>(number) * (kFours * kThreads) + threadIdx.x;
    };
    float4* const own = slot(part.slot);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        const auto& four = sums[i / kAcross][i % kAcross];
        own[i * kThreads] = make_float4(four[0], four[1], four[2], four[3]);
    }
    if (!arrives_last(tickets + part.tile, part.parts, last)) return false;
    for (int other = 0; other < part.parts; ++other) {
        const float4* const from = slot(part.slot_of(other));
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            auto& four = sums[i / kAcross][i % kAcross];
            const float4 more = from[i * kThreads];
            if (other == 0) four[0] = four[1] = four[2] = four[3] = 0.f;
            four[0] += more.x, four[1] += more.y, four[2] += more.z, four[3] += more.w;
        }
    }
    return true;
}

}  // namespace evo

// In which order tiles of keys are taken, and where in a ring of stages each of them lies.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// A position in a ring: the stage, and the parity of its barriers' phase.
template <int kStages>
struct RingPosition {
    int stage, parity;

    __device__ __forceinline__ explicit RingPosition(unsigned index)
        : stage(index % kStages), parity(index / kStages & 1) {}
    __device__ __forceinline__ void advance(int steps) {
        stage += steps;  // at most kStages
        if (stage >= kStages) stage -= kStages, parity ^= 1;
    }
};

// A walk over tiles: from the first to the last, or halving: the first, the middle one, the quarters, the eighths, and so
// on, each of these from left to right. Where scores change steadily along the keys, a row's maximum then moves at a few
// tiles alone.
template <bool kHalving>
struct TileWalk {
    int tile = 0;
    int step;  // halving: half the distance of the tiles of this round, 0 after the last

    __device__ __forceinline__ explicit TileWalk(int tiles)
        : step(kHalving && tiles > 0 ? 1 << (32 - __clz(tiles - 1)) : 0) {}
    __device__ __forceinline__ bool goes_on(int tiles) const { return kHalving ? step > 0 : tile < tiles; }
    __device__ __forceinline__ void advance(int count, int tiles) {
        if constexpr (kHalving) {
            for (int i = 0; i < count; ++i) {
                tile += 2 * step;
                if (tile >= tiles) step >>= 1, tile = step;
            }
        } else {
            tile += count;
        }
    }
};

}  // namespace evo

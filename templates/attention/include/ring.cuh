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

// Which tile comes next: in the order of their numbers; or halving, of those that need no mask, the first, the last, the
// middle one, the quarters, the eighths, and so on, each of these from left to right, then the others as they come. Where
// scores change steadily along the keys, a row's maximum then moves at a few tiles alone. `whole`: tiles without a mask.
// Each step is a few instructions, which run while copies do: to find a tile from its index takes a producer longer than
// consumers take for one.
template <bool kHalving>
struct TileOrder {
    int whole, index = 0, tile = 0, stride = 0;

    __device__ __forceinline__ explicit TileOrder(int whole) : whole(whole) {
        if (whole > 2) stride = 4 << (31 - __clz(whole - 2));  // so that the middle one comes after the last
    }
    __device__ __forceinline__ int next() {
        const int now = tile, last = whole - 1;
        ++index;
        if (!kHalving || index >= whole) {
            tile = index;
        } else if (index == 1) {
            tile = last;
        } else {  // odd multiples of half the stride, between the first and the last
            tile += stride;
            if (tile >= last) stride /= 2, tile = stride / 2;
        }
        return now;
    }
};

}  // namespace evo

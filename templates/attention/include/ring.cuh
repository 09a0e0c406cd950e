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

// Which tile comes at an index: the tile of that number; or halving, of those that need no mask, the first, the last, the
// middle one, the quarters, the eighths, and so on, each of these from left to right, then the others as they come. Where
// scores change steadily along the keys, a row's maximum then moves at a few tiles alone. `whole`: tiles without a mask.
template <bool kHalving>
__device__ __forceinline__ int tile_at(int index, int whole) {
    if (!kHalving || index == 0 || index >= whole) return index;
    const int last = whole - 1;
    if (index == 1) return last;
    int before = index - 2;
    for (int shift = 31 - __clz(last - 1);; --shift) {  // odd multiples of 2^shift between the first and the last
        const int found = (last - 1 + (1 << shift)) >> (shift + 1);
        if (before < found) return (2 * before + 1) << shift;
        before -= found;
    }
}

}  // namespace evo

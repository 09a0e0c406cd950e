// Softmax over rows of m16n8k16 accumulators, one tile of keys after the other (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018), in base 2 with the scale folded into one fma.
#pragma once
#include "mma/fragment.cuh"

namespace evo {

// Below every score that 16-bit inputs give, but finite: rows that have not met a visible key yet subtract it
// from -inf without making a NaN.
constexpr float kNoMaximum = -1e30f;

// Rescaling may wait until a row's maximum has grown by 2^8: P then stays below 256, well inside fp16.
[[maybe_unused]] constexpr float kLazyGrowth = 8.f;

__device__ __forceinline__ float masked_score() { return __int_as_float(0xff800000); }

// The largest, or the sum, over the four lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Hides keys from `length` on and, if causal, keys after their query. `row` is the query of block 0, line 0 of
// the warp, `key` the first key of the tile.
template <bool kCausal, int kBlocks, int kColumns>
__device__ __forceinline__ void mask_scores(float (&scores)[kBlocks][kColumns][4], int row, int key, int length,
                                            int lane) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = row + 16 * i + 8 * half + (lane >> 2);
            const int visible = (kCausal ? min(length, query + 1) : length) - key - 2 * (lane & 3);
#pragma unroll
            for (int j = 0; j < kColumns; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (8 * j + e >= visible) scores[i][j][2 * half + e] = masked_score();
        }
}

// Running maximum (of raw scores) and sum a row. The sum is this lane's share until `finish`.
template <int kBlocks, bool kLazy>
struct OnlineSoftmax {
    float maximum[kBlocks][2];
    float sum[kBlocks][2];

    __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) maximum[i][half] = kNoMaximum, sum[i][half] = 0.f;
    }

    // Takes a tile of scores: p = 2^(scale (score - maximum)) in 16 bits, `out` and sums rescaled to the new
    // maximum. `scale` includes log2(e).
    template <class Element, int kColumns, int kOut>
    __device__ __forceinline__ void update(u32 (&p)[kBlocks][kColumns / 2][4], float (&out)[kBlocks][kOut][4],
                                           const float (&scores)[kBlocks][kColumns][4], float scale) {
        float grown[kBlocks][2];
        largest(grown, scores);
        if (!kLazy || must_rescale(grown, scale)) rescale(out, grown, scale);
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float shift = maximum[i][half] * scale;
#pragma unroll
                for (int j = 0; j < kColumns; ++j) {
                    const float x = ex2(fmaf(scores[i][j][2 * half], scale, -shift));
                    const float y = ex2(fmaf(scores[i][j][2 * half + 1], scale, -shift));
                    sum[i][half] += x + y;
                    p[i][j / 2][half + 2 * (j & 1)] = Element::pack(x, y);
                }
            }
    }

    // Adds up the lanes' shares of the sums.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) sum[i][half] = row_sum(sum[i][half]);
    }

    // Divides by the (finished) sums.
    template <int kOut>
    __device__ __forceinline__ void normalise(float (&out)[kBlocks][kOut][4]) const {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float inverse = rcp(sum[i][half]);
#pragma unroll
                for (int j = 0; j < kOut; ++j) out[i][j][2 * half] *= inverse, out[i][j][2 * half + 1] *= inverse;
            }
    }

private:
    template <int kColumns>
    __device__ __forceinline__ void largest(float (&grown)[kBlocks][2],
                                            const float (&scores)[kBlocks][kColumns][4]) const {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float m = maximum[i][half];
#pragma unroll
                for (int j = 0; j < kColumns; ++j)
                    m = fmaxf(m, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
                grown[i][half] = row_max(m);
            }
    }

    // One answer a warp, so that the branch never diverges.
    __device__ __forceinline__ bool must_rescale(const float (&grown)[kBlocks][2], float scale) const {
        bool any = false;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                any = any || (grown[i][half] - maximum[i][half]) * scale > kLazyGrowth;
        return __any_sync(0xffffffffu, any);
    }

    template <int kOut>
    __device__ __forceinline__ void rescale(float (&out)[kBlocks][kOut][4], const float (&grown)[kBlocks][2],
                                            float scale) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float factor = ex2((maximum[i][half] - grown[i][half]) * scale);
                maximum[i][half] = grown[i][half];
                sum[i][half] *= factor;
#pragma unroll
                for (int j = 0; j < kOut; ++j) out[i][j][2 * half] *= factor, out[i][j][2 * half + 1] *= factor;
            }
    }
};

}  // namespace evo

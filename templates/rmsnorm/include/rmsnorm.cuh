// RMSNorm as an operation on rows: y = h / sqrt(mean of h² + epsilon) · weight with h = x, or h = x + residual,
// which is then written back. h is not rounded before it is normalised.
#pragma once
#include "row/chunk.cuh"

namespace evo {

template <class Stored, bool kResidual, Caching kReads, Caching kStores>
struct RmsNorm {
    using Element = Stored;
    static constexpr Caching kLoads = kReads;
    static constexpr int kStreams = kResidual ? 2 : 1;
    static constexpr int kPasses = 1;
    static constexpr bool kWritesRow = true, kMaySuffice = false;
    struct State {
        float value[1];  // the sum of squares; once it is found, the factor
    };
    template <int kWidth> using Weights = Chunk<Element, kWidth>;

    const Element* x;
    Element* residual;
    const Element* weight;
    Element* y;
    int columns;
    long long pitch;  // elements from one row of x to the next
    float epsilon;

    // The same, where row 0 and column 0 are this element.
    __device__ __forceinline__ RmsNorm at(long long row, int column) const {
        const long long dense = row * columns + column;
        return {kept(x + row * pitch + column), kResidual ? kept(residual + dense) : nullptr, kept(weight + column),
                kept(y + dense), columns, pitch, epsilon};
    }
    // Where a row of a matrix that is read begins.
    __device__ __forceinline__ const Element* source(int stream, long long row) const {
        return stream ? residual + row * columns : x + row * pitch;
    }
    template <bool kThen = false, int kWidth>
    __device__ __forceinline__ void load(Weights<kWidth>& to, int column, int more = 0) const {
        to.template load_constant<kThen>(weight + column + more);
    }
    template <int kWidth>
    static __device__ __forceinline__ void keep_packed(Weights<kWidth>& weights) { weights.keep_packed(); }
    template <int kWidth>
    __device__ __forceinline__ void values(const Chunks<Element, kWidth, kStreams>& held, float (&h)[kWidth]) const {
        held.of[0].floats(h);
        if constexpr (kResidual) {
            float more[kWidth];
            held.of[1].floats(more);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) h[i] += more[i];
        }
    }

    __device__ __forceinline__ State start(long long) const { return {}; }
    template <int kPass>
    static __device__ __forceinline__ State none(const State&) { return {0.f}; }
    template <int kPass, int kWidth>
    __device__ __forceinline__ void take(State& state, const float (&h)[kWidth]) const {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) state.value[0] = fmaf(h[i], h[i], state.value[0]);
    }
    template <int kPass>
    static __device__ __forceinline__ void join(State& state, const State& other) { state.value[0] += other.value[0]; }
    template <int kPass>
    __device__ __forceinline__ State found(const State& state) const {
        return {rsqrtf(state.value[0] / static_cast<float>(columns) + epsilon)};
    }

    template <int kWidth>
    __device__ __forceinline__ void finish(long long row, int column, const float (&h)[kWidth],
                                           const Weights<kWidth>& weights, const State& state) const {
        if constexpr (kResidual)
            Chunk<Element, kWidth>::rounded(h).template store<kStores>(residual + row * columns + column);
        float w[kWidth], normalised[kWidth];
        weights.floats(w);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) normalised[i] = h[i] * state.value[0] * w[i];
        Chunk<Element, kWidth>::rounded(normalised).template store<kStores>(y + row * columns + column);
    }
    __device__ __forceinline__ void finish_row(long long, const State&) const {}
};

}  // namespace evo

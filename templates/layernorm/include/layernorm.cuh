// LayerNorm as an operation on rows: y = (x - mean) / sqrt(variance + epsilon) · weight + bias. The mean first and
// then the squares of what differs from it; or both at once, joined as Chan, Golub and LeVeque (1979) do.
#pragma once
#include "row/chunk.cuh"

namespace evo {

template <class Stored, bool kOnline, Caching kReads, Caching kStores>
struct LayerNorm {
    using Element = Stored;
    static constexpr Caching kLoads = kReads;
    static constexpr int kStreams = 1, kPasses = kOnline ? 1 : 2;
    static constexpr bool kWritesRow = true;
    struct State {
        float value[kOnline ? 3 : 2];  // mean (at first the sum), squares (at last the factor), online: count
    };
    template <int kWidth> struct Weights {
        Chunk<Element, kWidth> weight, bias;
    };

    const Element* x;
    const Element* weight;
    const Element* bias;
    Element* y;
    int columns;
    long long pitch;  // elements from one row of x to the next
    float epsilon;

    // The same, where row 0 and column 0 are this element.
    __device__ __forceinline__ LayerNorm at(long long row, int column) const {
        return {kept(x + row * pitch + column), kept(weight + column), kept(bias + column),
                kept(y + row * columns + column), columns, pitch, epsilon};
    }
    __device__ __forceinline__ const Element* source(int, long long row) const { return x + row * pitch; }
    template <int kWidth>
    __device__ __forceinline__ void load(Weights<kWidth>& to, int column, int more = 0) const {
        to.weight.load_constant(weight + column + more);
        to.bias.load_constant(bias + column + more);
    }
    template <int kWidth>
    static __device__ __forceinline__ void keep_packed(Weights<kWidth>& weights) {
        weights.weight.keep_packed();
        weights.bias.keep_packed();
    }
    template <int kWidth>
    __device__ __forceinline__ void values(const Chunks<Element, kWidth, 1>& held, float (&to)[kWidth]) const {
        held.of[0].floats(to);
    }

    template <int kPass>
    static __device__ __forceinline__ State none(const State& known) {
        State nothing = {};
        if constexpr (kPass == 1) nothing.value[0] = known.value[0];
        return nothing;
    }
    template <int kPass, int kWidth>
    __device__ __forceinline__ void take(State& state, const float (&x)[kWidth]) const {
        if constexpr (kOnline) {
            State chunk = {};
#pragma unroll
            for (int i = 0; i < kWidth; ++i) chunk.value[0] += x[i];
            chunk.value[0] /= static_cast<float>(kWidth);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) chunk.value[1] += (x[i] - chunk.value[0]) * (x[i] - chunk.value[0]);
            chunk.value[2] = kWidth;
            join<0>(state, chunk);
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                if constexpr (kPass == 0) state.value[0] += x[i];
                else state.value[1] = fmaf(x[i] - state.value[0], x[i] - state.value[0], state.value[1]);
            }
        }
    }
    template <int kPass>
    static __device__ __forceinline__ void join(State& state, const State& other) {
        if constexpr (kOnline) {
            const float count = state.value[2] + other.value[2], apart = other.value[0] - state.value[0];
            const float share = count > 0.f ? other.value[2] / count : 0.f;
            state.value[0] += apart * share;
            state.value[1] += other.value[1] + apart * apart * state.value[2] * share;
            state.value[2] = count;
        } else {
            state.value[kPass] += other.value[kPass];
        }
    }
    template <int kPass>
    __device__ __forceinline__ State found(const State& state) const {
        State last = state;
        const float count = static_cast<float>(columns);
        if constexpr (!kOnline && kPass == 0) last.value[0] = state.value[0] / count;
        else last.value[1] = rsqrtf(state.value[1] / count + epsilon);
        return last;
    }

    template <int kWidth>
    __device__ __forceinline__ void finish(long long row, int column, const float (&x)[kWidth],
                                           const Weights<kWidth>& weights, const State& state) const {
        float w[kWidth], b[kWidth], normalised[kWidth];
        weights.weight.floats(w);
        weights.bias.floats(b);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            normalised[i] = fmaf((x[i] - state.value[0]) * state.value[1], w[i], b[i]);
        Chunk<Element, kWidth>::rounded(normalised).template store<kStores>(y + row * columns + column);
    }
    __device__ __forceinline__ void finish_row(long long, const State&) const {}
};

}  // namespace evo

// LayerNorm as an operation on rows: y = (x - mean) / sqrt(variance + epsilon) · weight + bias. The mean first and
// then the squares of what differs from it. Or both at once, relative to the row's first element, which is a shift
// that data themselves give (Chan, Golub and LeVeque, 1983); where most of the squares cancels, that element is far
// from the mean, and a second pass takes them from there.
#pragma once
#include "row/chunk.cuh"

namespace evo {

template <class Stored, bool kOnline, Caching kReads, Caching kStores>
struct LayerNorm {
    using Element = Stored;
    static constexpr Caching kLoads = kReads;
    static constexpr int kStreams = 1, kPasses = 2;
    static constexpr bool kWritesRow = true, kMaySuffice = kOnline;
    struct State {
        float value[kOnline ? 3 : 2];  // mean (at first the sum, online: the shift), squares (at last the factor), sum
    };
    template <int kWidth> struct Weights {
        Chunk<Element, kWidth> weight, bias;
    };

    static constexpr float kMostCancels = 8.f;  // how many times as large squares may be as what remains of them

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
    template <bool kThen = false, int kWidth>
    __device__ __forceinline__ void load(Weights<kWidth>& to, int column, int more = 0) const {
        to.weight.template load_constant<kThen>(weight + column + more);
        to.bias.template load_constant<kThen>(bias + column + more);
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

    // What is known of a row before its passes.
    __device__ __forceinline__ State start(long long row) const {
        State known = {};
        if constexpr (kOnline) {
            Chunk<Element, 1> one;
            one.template load<Caching::usual_>(source(0, row));
            float shift[1];
            one.floats(shift);
            known.value[0] = shift[0];
        }
        return known;
    }
    template <int kPass>
    static __device__ __forceinline__ State none(const State& known) {
        State nothing = {};
        if constexpr (kOnline || kPass == 1) nothing.value[0] = known.value[0];
        return nothing;
    }
    // Whether the first pass has found all.
    static __device__ __forceinline__ bool suffices(const State& found) { return found.value[1] > 0.f; }
    template <int kPass, int kWidth>
    __device__ __forceinline__ void take(State& state, const float (&x)[kWidth]) const {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            if constexpr (kOnline && kPass == 0) state.value[2] += x[i] - state.value[0];
            if constexpr (!kOnline && kPass == 0) state.value[0] += x[i];
            else state.value[1] = fmaf(x[i] - state.value[0], x[i] - state.value[0], state.value[1]);
        }
    }
    template <int kPass>
    static __device__ __forceinline__ void join(State& state, const State& other) {
        if constexpr (kOnline || kPass == 1) state.value[1] += other.value[1];
        if constexpr (kPass == 0) state.value[kOnline ? 2 : 0] += other.value[kOnline ? 2 : 0];
    }
    template <int kPass>
    __device__ __forceinline__ State found(const State& state) const {
        State last = state;
        const float count = static_cast<float>(columns);
        float squares = state.value[1];
        if constexpr (kPass == 0) {
            const float mean = state.value[kOnline ? 2 : 0] / count;
            last.value[0] = kOnline ? state.value[0] + mean : mean;
            squares = fmaf(-mean, state.value[kOnline ? 2 : 0], squares);
        }
        // a factor is above 0; 0 asks for the second pass
        const bool good = kPass == 1 || kOnline && squares * kMostCancels >= state.value[1];
        last.value[1] = good ? rsqrtf(squares / count + epsilon) : 0.f;
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

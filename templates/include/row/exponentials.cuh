// The largest element of a row and the sum of exponentials relative to it: in two passes, or online in one
// (Milakov and Gimelshein, 2018). An element of -inf weighs nothing; a row of nothing else has no largest element, and
// what is computed of it is NaN.
#pragma once
#include "row/chunk.cuh"

namespace evo {

constexpr float kLog2E = 1.4426950408889634f;

struct Exponentials {
    float value[2];  // the largest element, the sum

    static __device__ __forceinline__ Exponentials nothing() { return {{__int_as_float(0xff800000), 0.f}}; }
    // What exponents are relative to: not -inf, for -inf less that is NaN.
    static __device__ __forceinline__ float base(float largest) {
        return largest == __int_as_float(0xff800000) ? 0.f : largest;
    }
    static __device__ __forceinline__ float weight(float x, float base) { return ex2((x - base) * kLog2E); }

    template <int kWidth>
    __device__ __forceinline__ void take_largest(const float (&x)[kWidth]) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) value[0] = fmaxf(value[0], x[i]);
    }
    template <int kWidth>
    __device__ __forceinline__ void take_sum(const float (&x)[kWidth], float base) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) value[1] += weight(x[i], base);
    }
    template <int kWidth>
    __device__ __forceinline__ void take_online(const float (&x)[kWidth]) {
        const float before = value[0];
        take_largest(x);
        const float now = base(value[0]);
        value[1] *= weight(before, now);
        take_sum(x, now);
    }
    __device__ __forceinline__ void join_online(const Exponentials& other) {
        const float before = value[0];
        value[0] = fmaxf(before, other.value[0]);
        const float now = base(value[0]);
        value[1] = value[1] * weight(before, now) + other.value[1] * weight(other.value[0], now);
    }
};

// What softmax and cross-entropy share of an operation on rows.
template <class Stored, bool kOnline, Caching kReads>
struct ExponentialRows {
    using Element = Stored;
    static constexpr Caching kLoads = kReads;
    static constexpr int kStreams = 1, kPasses = kOnline ? 1 : 2;
    static constexpr bool kMaySuffice = false;
    using State = Exponentials;
    template <int kWidth> struct Weights {};

    const Element* x;
    int columns;
    long long pitch;  // elements from one row of x to the next

    __device__ __forceinline__ const Element* source(int, long long row) const { return x + row * pitch; }
    template <bool kThen = false, int kWidth>
    __device__ __forceinline__ void load(Weights<kWidth>&, int, int = 0) const {}
    template <int kWidth>
    static __device__ __forceinline__ void keep_packed(Weights<kWidth>&) {}
    template <int kWidth>
    __device__ __forceinline__ void values(const Chunks<Element, kWidth, 1>& held, float (&to)[kWidth]) const {
        held.of[0].floats(to);
    }
    __device__ __forceinline__ State start(long long) const { return {}; }
    template <int kPass>
    static __device__ __forceinline__ State none(const State& known) {
        State nothing = State::nothing();
        if constexpr (kPass == 1) nothing.value[0] = known.value[0];
        return nothing;
    }
    template <int kPass, int kWidth>
    __device__ __forceinline__ void take(State& state, const float (&x)[kWidth]) const {
        if constexpr (kOnline) state.take_online(x);
        else if constexpr (kPass == 0) state.take_largest(x);
        else state.take_sum(x, State::base(state.value[0]));
    }
    template <int kPass>
    static __device__ __forceinline__ void join(State& state, const State& other) {
        if constexpr (kOnline) state.join_online(other);
        else if constexpr (kPass == 0) state.value[0] = fmaxf(state.value[0], other.value[0]);
        else state.value[1] += other.value[1];
    }
    template <int kPass>
    __device__ __forceinline__ State found(const State& state) const { return state; }
};

}  // namespace evo

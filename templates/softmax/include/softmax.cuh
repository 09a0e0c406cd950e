// Softmax, or its logarithm, as an operation on rows.
#pragma once
#include "row/exponentials.cuh"

namespace evo {

template <class Stored, bool kLog, bool kOnline, Caching kReads, Caching kStores>
struct Softmax : ExponentialRows<Stored, kOnline, kReads> {
    using Base = ExponentialRows<Stored, kOnline, kReads>;
    using Element = Stored;
    using State = Exponentials;
    static constexpr bool kWritesRow = true;
    Element* y;

    __device__ __forceinline__ Softmax(const Element* x, Element* y, int columns, long long pitch)
        : Base{x, columns, pitch}, y(y) {}

    // The same, where row 0 and column 0 are this element.
    __device__ __forceinline__ Softmax at(long long row, int column) const {
        return {kept(this->x + row * this->pitch + column), kept(y + row * this->columns + column), this->columns,
                this->pitch};
    }
    template <int kWidth>
    __device__ __forceinline__ void finish(long long row, int column, const float (&x)[kWidth],
                                           const typename Base::template Weights<kWidth>&, const State& state) const {
        float normalised[kWidth];
        const float factor = kLog ? logf(state.value[1]) : 1.f / state.value[1];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            if constexpr (kLog) normalised[i] = x[i] - state.value[0] - factor;
            else normalised[i] = State::weight(x[i], state.value[0]) * factor;
        }
        Chunk<Element, kWidth>::rounded(normalised).template store<kStores>(y + row * this->columns + column);
    }
    __device__ __forceinline__ void finish_row(long long, const State&) const {}
};

}  // namespace evo

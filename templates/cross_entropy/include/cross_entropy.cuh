// Cross-entropy as an operation on rows: what is written is one number a row, or two.
#pragma once
#include "row/exponentials.cuh"

namespace evo {

template <class Stored, bool kLse, bool kOnline, Caching kReads>
struct CrossEntropy : ExponentialRows<Stored, kOnline, kReads> {
    using Base = ExponentialRows<Stored, kOnline, kReads>;
    using Element = Stored;
    using State = Exponentials;
    static constexpr bool kWritesRow = false;
    const long long* labels;
    float* loss;
    float* lse;
    long long ignored;  // the label of rows without a loss

    __device__ __forceinline__ CrossEntropy(const Element* x, const long long* labels, float* loss, float* lse,
                                            int columns, long long pitch, long long ignored)
        : Base{x, columns, pitch}, labels(labels), loss(loss), lse(lse), ignored(ignored) {}

    // The same, where row 0 and column 0 of x are this element.
    __device__ __forceinline__ CrossEntropy at(long long row, int column) const {
        return {kept(this->x + row * this->pitch + column), labels, loss, lse, this->columns, this->pitch, ignored};
    }
    template <int kWidth>
    __device__ __forceinline__ void finish(long long, int, const float (&)[kWidth],
                                           const typename Base::template Weights<kWidth>&, const State&) const {}
    __device__ __forceinline__ void finish_row(long long row, const State& state) const {
        const long long label = __ldg(labels + row);
        const float total = state.value[0] + logf(state.value[1]);
        float own[1] = {total};  // of a row without a label: its loss is 0
        if (label != ignored) {
            Chunk<Element, 1> one;
            one.template load<Caching::usual_>(this->source(0, row) + label);
            one.floats(own);
        }
        loss[row] = total - own[0];
        if constexpr (kLse) lse[row] = total;
    }
};

}  // namespace evo

// What becomes of a sum of the product before it is rounded, and the type that it is rounded to.
#pragma once
#include "memory/element.cuh"

namespace evo {

enum class Finish { none_, bias_, bias_gelu_, bias_silu_, residual_, scale_ };

// What the epilogue takes: elements of a bias or a residual, or one float.
template <class Element, Finish kFinish>
struct OperandOf {
    using type = Element;
};
template <class Element>
struct OperandOf<Element, Finish::scale_> {
    using type = float;
};

template <class Element>
__device__ __forceinline__ float widened(Element x) { return Element::low(x.bits); }
__device__ __forceinline__ float widened(float x) { return x; }

// 1 / (1 + e^-x)
__device__ __forceinline__ float logistic(float x) { return rcp(1.f + ex2(x * -1.4426950408889634f)); }

// The epilogue of one sum. `other` is the element of bias or residual that belongs to it, or the scale.
template <Finish kFinish>
__device__ __forceinline__ float finished(float sum, [[maybe_unused]] float other) {
    if constexpr (kFinish == Finish::none_) {
        return sum;
    } else if constexpr (kFinish == Finish::scale_) {
        return sum * other;
    } else {
        const float x = sum + other;
        if constexpr (kFinish == Finish::bias_silu_) return x * logistic(x);
        // GELU by tanh: (1 + tanh y) / 2 is the logistic function of 2 y
        if constexpr (kFinish == Finish::bias_gelu_)
            return x * logistic(1.5957691216057308f * fmaf(0.044715f * x * x, x, x));
        return x;
    }
}

// Where the operand of element (row, column) of matrix `matrix` lies; `rows` and `columns` are those of C.
template <Finish kFinish>
__device__ __forceinline__ long long operand_offset(int matrix, int row, int column, int rows, int columns) {
    if constexpr (kFinish == Finish::scale_ || kFinish == Finish::none_) return 0;
    else if constexpr (kFinish == Finish::residual_) return (static_cast<long long>(matrix) * rows + row) * columns + column;
    else return column;
}

template <class Element>
__device__ __forceinline__ void put(Element* to, float x) { to->bits = static_cast<u16>(Element::pack(x, 0.f)); }
__device__ __forceinline__ void put(float* to, float x) { *to = x; }

}  // namespace evo

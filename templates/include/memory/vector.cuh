// Reading several 16-bit elements with one instruction, as floats.
#pragma once
#include "memory/element.cuh"

namespace evo {

template <int kWidth> struct Word;  // what kWidth 16-bit elements travel in
template <> struct Word<1> { using type = u16; };
template <> struct Word<2> { using type = u32; };
template <> struct Word<4> { using type = uint2; };
template <> struct Word<8> { using type = uint4; };

// kWidth elements from an address that is aligned to as many.
template <int kWidth, class Element>
__device__ __forceinline__ void load_floats(float (&to)[kWidth], const Element* from) {
    const auto word = *reinterpret_cast<const typename Word<kWidth>::type*>(from);
    if constexpr (kWidth == 1) {
        to[0] = Element::low(word);
    } else {
        u32 pairs[kWidth / 2];
        if constexpr (kWidth == 2) pairs[0] = word;
        else pairs[0] = word.x, pairs[1] = word.y;
        if constexpr (kWidth == 8) pairs[2] = word.z, pairs[3] = word.w;
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) to[2 * i] = Element::low(pairs[i]), to[2 * i + 1] = Element::high(pairs[i]);
    }
}

// Rounds kWidth floats and writes them to an address that is aligned to as many elements.
template <int kWidth, class Element>
__device__ __forceinline__ void store_floats(Element* to, const float (&from)[kWidth]) {
    if constexpr (kWidth == 1) {
        to->bits = static_cast<u16>(Element::pack(from[0], 0.f));
    } else if constexpr (kWidth == 2) {
        *reinterpret_cast<u32*>(to) = Element::pack(from[0], from[1]);
    } else if constexpr (kWidth == 4) {
        *reinterpret_cast<uint2*>(to) = make_uint2(Element::pack(from[0], from[1]), Element::pack(from[2], from[3]));
    } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(Element::pack(from[0], from[1]), Element::pack(from[2], from[3]),
                                                   Element::pack(from[4], from[5]), Element::pack(from[6], from[7]));
    }
}

}  // namespace evo

// Up to 16 bytes of a row, moved by one instruction, and their elements as floats.
#pragma once
#include "memory/element.cuh"
#include "ptx/evict.cuh"

namespace evo {

struct Fp32 {
    float value;
};

// Where a load or a store leaves its bytes: as usual, only in L2, or first in line to make room for others; a load also
// where the L2 cache drops them last.
enum class Caching { usual_, l2_, streaming_, evict_last_ };

template <int kBytes> struct Bits;  // what kBytes travel in
template <> struct Bits<2> { using type = u16; };
template <> struct Bits<4> { using type = u32; };
template <> struct Bits<8> { using type = uint2; };
template <> struct Bits<16> { using type = uint4; };

template <Caching kCaching, class T>
__device__ __forceinline__ T load_bits(const T* from) {
    if constexpr (kCaching == Caching::l2_) return __ldcg(from);
    else if constexpr (kCaching == Caching::streaming_) return __ldcs(from);
    else if constexpr (kCaching == Caching::evict_last_) return load_global(from, evict_last_policy());
    else return *from;
}

template <Caching kCaching, class T>
__device__ __forceinline__ void store_bits(T* to, T bits) {
    static_assert(kCaching != Caching::evict_last_);
    if constexpr (kCaching == Caching::l2_) __stcg(to, bits);
    else if constexpr (kCaching == Caching::streaming_) __stcs(to, bits);
    else *to = bits;
}

// kWidth elements at an address that is a multiple of their size together.
template <class Element, int kWidth>
struct Chunk {
    static constexpr int kBytes = kWidth * static_cast<int>(sizeof(Element));
    using Type = typename Bits<kBytes>::type;
    Type bits;

    template <Caching kCaching>
    __device__ __forceinline__ void load(const Element* from) {
        bits = load_bits<kCaching>(reinterpret_cast<const Type*>(from));
    }

    template <Caching kCaching>
    __device__ __forceinline__ void store(Element* to) const {
        store_bits<kCaching>(reinterpret_cast<Type*>(to), bits);
    }

    // Of inputs alone. The compiler may load what no kernel writes whenever it likes; kThen: not before it is asked for.
    template <bool kThen = false>
    __device__ __forceinline__ void load_constant(const Element* from) {
        if constexpr (kThen) load<Caching::usual_>(from);
        else bits = __ldg(reinterpret_cast<const Type*>(from));
    }

    // The compiler may not keep its elements as floats from before this point: they are twice the registers.
    __device__ __forceinline__ void keep_packed() {
        if constexpr (kBytes == 2) asm volatile("" : "+h"(bits));
        else if constexpr (kBytes == 4) asm volatile("" : "+r"(bits));
        else if constexpr (kBytes == 8) asm volatile("" : "+r"(bits.x), "+r"(bits.y));
        else asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    }

    __device__ __forceinline__ u32 word(int i) const {
        if constexpr (kBytes <= 4) return bits;
        else if constexpr (kBytes == 8) return i ? bits.y : bits.x;
        else return i == 0 ? bits.x : i == 1 ? bits.y : i == 2 ? bits.z : bits.w;
    }

    __device__ __forceinline__ void floats(float (&to)[kWidth]) const {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            if constexpr (sizeof(Element) == 4) to[i] = __uint_as_float(word(i));
            else to[i] = i % 2 ? Element::high(word(i / 2)) : Element::low(word(i / 2));
        }
    }

    // The nearest elements.
    static __device__ __forceinline__ Chunk rounded(const float (&from)[kWidth]) {
        Chunk found;
        if constexpr (kBytes == 2) {
            found.bits = static_cast<u16>(Element::pack(from[0], 0.f));
        } else {
            u32 words[kBytes / 4];
#pragma unroll
            for (int i = 0; i < kBytes / 4; ++i) {
                if constexpr (sizeof(Element) == 4) words[i] = __float_as_uint(from[i]);
                else words[i] = Element::pack(from[2 * i], from[2 * i + 1]);
            }
            if constexpr (kBytes == 4) found.bits = words[0];
            else if constexpr (kBytes == 8) found.bits = make_uint2(words[0], words[1]);
            else found.bits = make_uint4(words[0], words[1], words[2], words[3]);
        }
        return found;
    }
};

// The address itself: the compiler keeps it in registers. It would compute it anew for each chunk, in a fifth of a
// chunk's instructions.
template <class T>
__device__ __forceinline__ T* kept(T* address) {
    asm("" : "+l"(address));
    return address;
}

// The same columns of all matrices that an operation reads.
template <class Element, int kWidth, int kStreams>
struct Chunks {
    Chunk<Element, kWidth> of[kStreams];
};

template <class Operation, int kWidth>
using Columns = Chunks<typename Operation::Element, kWidth, Operation::kStreams>;

// Of `row`, from `column + more` on. Where only `more`, a constant, differs, one address serves many chunks.
template <int kWidth, class Operation>
__device__ __forceinline__ void load_chunks(Columns<Operation, kWidth>& to, const Operation& operation, long long row,
                                            int column, int more = 0) {
    // Single elements (of rows that are not aligned) are loaded as usual: a policy takes registers from all rows.
    constexpr bool kPlain = kWidth == 1 && Operation::kLoads == Caching::evict_last_;
    constexpr Caching kLoads = kPlain ? Caching::usual_ : Operation::kLoads;
#pragma unroll
    for (int i = 0; i < Operation::kStreams; ++i)
        to.of[i].template load<kLoads>(operation.source(i, row) + column + more);
}

}  // namespace evo

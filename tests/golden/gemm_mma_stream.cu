// The product on Tensor Cores: mma.sync.m16n8k16, ldmatrix, cp.async (sm_80 and up).
// A CTA takes tiles of kBM x kBN of C, or parts of them along K. Operands come through a ring of kStages tiles in
// shared memory; sums stay in registers until they are finished and stored.
// finish.cuh
// What becomes of a sum of the product before it is rounded, and the type that it is rounded to.
// element.cuh
// The two 16-bit storage types, as types: what differs between fp16 and bf16 is here and nowhere else.
// ptx.cuh
// One function per PTX instruction (ISA names in the comments), and nothing else.

namespace evo {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// cvta.to.shared: the 32-bit address that shared-memory instructions take.
__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// cp.async.cg, 16 bytes, past L1. Where `real` is false nothing is read and 16 zero bytes are written.
__device__ __forceinline__ void cp_async_16(u32 to, const void* from, bool real) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0) : "memory");
}

// cp.async.commit_group
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp.async.wait_group: at most `kPending` of this thread's latest groups are still in flight afterwards.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(kPending) : "memory");
}

// barrier.sync over `threads` threads (a multiple of 32) of the CTA; barrier 0 is __syncthreads's own.
__device__ __forceinline__ void barrier_sync(u32 barrier, u32 threads) {
    asm volatile("barrier.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}

// barrier.arrive: counts the calling warp at a barrier whose others wait, without waiting itself.
__device__ __forceinline__ void barrier_arrive(u32 barrier, u32 threads) {
    asm volatile("barrier.arrive %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}

// barrier.red.or: barrier_sync that also tells whether `predicate` holds in any of the threads.
__device__ __forceinline__ bool barrier_any(u32 barrier, u32 threads, bool predicate) {
    u32 any;
    asm volatile("{\n"
                 ".reg .pred mine, any;\n"
                 "setp.ne.u32 mine, %3, 0;\n"
                 "barrier.red.or.pred any, %1, %2, mine;\n"
                 "selp.u32 %0, 1, 0, any;\n"
                 "}" : "=r"(any) : "r"(barrier), "r"(threads), "r"(static_cast<u32>(predicate)) : "memory");
    return any;
}

// barrier.cluster.arrive.relaxed: tells the cluster that this thread has come here; orders no memory.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// barrier.cluster.arrive.release: what this thread wrote is seen by those that wait.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// barrier.cluster.wait.acquire: until every thread of the cluster has arrived.
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// mapa: the cluster-wide address of what lies at `address` in the shared memory of CTA `rank`.
__device__ __forceinline__ u32 map_to_rank(u32 address, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// st.shared::cluster.v4.f32
__device__ __forceinline__ void store_cluster(u32 to, float4 x) {
    asm volatile("st.shared::cluster.v4.f32 [%0], { %1, %2, %3, %4 };"
                 :: "r"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
}

// st.shared::cluster.v2.f32
__device__ __forceinline__ void store_cluster(u32 to, float2 x) {
    asm volatile("st.shared::cluster.v2.f32 [%0], { %1, %2 };" :: "r"(to), "f"(x.x), "f"(x.y) : "memory");
}

// st.global.v4.b32: one store, where the compiler may split one of a uint4 under a condition into four.
__device__ __forceinline__ void store_global(void* to, uint4 x) {
    asm volatile("st.global.v4.b32 [%0], { %1, %2, %3, %4 };"
                 :: "l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// ldmatrix.x4: four 8x8 matrices of 16-bit elements; lane l gives the row address of row l%8 of matrix l/8.
__device__ __forceinline__ void ldmatrix_x4(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(row) : "memory");
}

// ldmatrix.x4.trans: as above, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(row) : "memory");
}

// mma.m16n8k16, fp16 operands: d += a b, fp32 accumulation.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// mma.m16n8k16, bf16 operands: d += a b, fp32 accumulation.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ex2.approx.ftz: 2^x, exact at integers, 2^-inf = 0.
__device__ __forceinline__ float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// rcp.approx.ftz: 1/x within 1 ulp.
__device__ __forceinline__ float rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// cvt.rn.f16x2.f32: `low` in the low half.
__device__ __forceinline__ u32 cvt_f16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// cvt.rn.bf16x2.f32: `low` in the low half.
__device__ __forceinline__ u32 cvt_bf16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// cvt.f32.f16
__device__ __forceinline__ float cvt_f32_f16(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

}  // namespace evo


namespace evo {

struct Fp16 {
    u16 bits;
    static __device__ __forceinline__ u32 pack(float low, float high) { return cvt_f16x2(low, high); }
    static __device__ __forceinline__ float low(u32 pair) { return cvt_f32_f16(static_cast<u16>(pair)); }
    static __device__ __forceinline__ float high(u32 pair) { return cvt_f32_f16(static_cast<u16>(pair >> 16)); }
    static __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        mma_m16n8k16_f16(d, a, b0, b1);
    }
};

struct Bf16 {
    u16 bits;
    static __device__ __forceinline__ u32 pack(float low, float high) { return cvt_bf16x2(low, high); }
    // bf16 is the upper half of an fp32
    static __device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
    static __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        mma_m16n8k16_bf16(d, a, b0, b1);
    }
};

}  // namespace evo


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

// operands.cuh
// Tiles of A and B on their way from global memory to the fragments of m16n8k16, in any layout and alignment.
// tile.cuh
// A tile in shared memory: rows of kColumns 16-bit elements, moved in chunks of 16 bytes.


namespace evo {

// How rows are laid out so that the eight rows of an ldmatrix phase fall into different bank groups:
//   none  dense rows (what conflicts cost is to be measured, not assumed)
//   pad   16 bytes of padding a row: an odd number of chunks walks through all eight bank groups
//   xor   chunk c of row r is stored at chunk c ^ f(r); costs no memory
enum class Swizzle { none_, pad_, xor_ };

template <int kColumns, Swizzle kSwizzle>
struct RowLayout {
    static constexpr int kChunks = kColumns / 8;
    static constexpr int kRowBytes = kColumns * 2 + (kSwizzle == Swizzle::pad_ ? 16 : 0);
    static constexpr int kPeriod = 8;  // rows after which the pattern repeats
    static_assert(kColumns % 16 == 0, "the xor pattern permutes two chunks at least");

    // Byte offset of a chunk. Rows of 64 or 192 bytes start in only two bank groups (row parity), so there
    // the pattern permutes four chunks by (row / 2) % 4; rows of 160 bytes start in four, and two chunks are
    // swapped by (row / 4) % 2; rows of 128 bytes and multiples all start in one.
    static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
        if constexpr (kSwizzle == Swizzle::xor_)
            chunk ^= kColumns % 64 == 0 ? row & 7 : kColumns % 32 == 0 ? (row >> 1) & 3 : (row >> 2) & 1;
        return row * kRowBytes + chunk * 16;
    }
};

template <class Layout, int kRows>
struct alignas(16) Tile {
    unsigned char bytes[kRows * Layout::kRowBytes];
};

// The same pointer, but the compiler cannot see how it came about: otherwise it takes the sum apart again and
// spends 64-bit arithmetic on every access instead of an immediate offset.
template <class Pointed>
__device__ __forceinline__ Pointed* as_base(Pointed* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// One of kThreads threads that copy tiles of kRows rows of a dense global matrix.
template <class Element, class Layout, int kRows, int kThreads>
class TileCopy {
    static constexpr int kChunks = Layout::kChunks;
    static constexpr int kColumns = kChunks * 8;

public:
    // `thread` is the caller's number among the kThreads.
    __device__ __forceinline__ TileCopy(const Element* matrix, u32 thread)
        : thread_(thread), from_(as_base(matrix + thread * 8)) {}

    // Starts copying the rows from `row` on. From `rows_left` on, nothing is read and zeros are written.
    __device__ __forceinline__ void start(u32 tile, int row, int rows_left) const {
        start_columns<0, kChunks>(tile, from_ + static_cast<long long>(row) * kColumns, rows_left);
    }

private:
    // So many of `count` chunks of a row are copied at once that a thread stays in its column: only the row advances.
    // Where it would not, each copy had an address of its own, which takes registers.
    static constexpr __device__ int width(int count) {
        int wide = 1;
        while (2 * wide <= count) wide *= 2;
        return kThreads % count == 0 ? count : wide;
    }

    template <int kFirst, int kCount>
    __device__ __forceinline__ void start_columns(u32 tile, const Element* from, int rows_left) const {
        constexpr int kWidth = width(kCount), kStep = kThreads / kWidth;
        const int first = thread_ / kWidth, chunk = kFirst + thread_ % kWidth, left = rows_left - first;
        const Element* own = from;
        if constexpr (kWidth != kChunks) own += (first * kChunks + chunk - static_cast<int>(thread_)) * 8;
        const u32 to = tile + Layout::offset(first, chunk);
#pragma unroll
        for (int pass = 0; pass < (kRows + kStep - 1) / kStep; ++pass) {
            const int down = pass * kStep;
            const u32 there = kStep % Layout::kPeriod == 0 ? to + down * Layout::kRowBytes
                                                           : tile + Layout::offset(first + down, chunk);
            if (down + kStep <= kRows || first + down < kRows) cp_async_16(there, own + down * kColumns, left > down);
        }
        if constexpr (kWidth < kCount) start_columns<kFirst + kWidth, kCount - kWidth>(tile, from, rows_left);
    }

    u32 thread_;
    const Element* from_;
};

// Writes kCount chunks from `first_chunk` of the first `rows_left` of kRows rows of a tile to a dense global
// matrix, by kThreads threads.
template <class Layout, int kRows, int kCount, int kThreads, class Element>
__device__ __forceinline__ void store_rows(Element* rows, const unsigned char* tile, int first_chunk, int rows_left,
                                           u32 thread) {
#pragma unroll
    for (u32 index = thread; index < kRows * kCount; index += kThreads) {
        const int row = index / kCount, chunk = first_chunk + index % kCount;
        if (row < rows_left)
            *reinterpret_cast<uint4*>(rows + (row * Layout::kChunks + chunk) * 8) =
                *reinterpret_cast<const uint4*>(tile + Layout::offset(row, chunk));
    }
}

}  // namespace evo

// half.cuh
// One function per PTX instruction on pairs of fp16, on bits, and on a few bytes of shared memory (ISA names in the
// comments), and nothing else.


namespace evo {

// lop3: (bits & mask) | set
__device__ __forceinline__ u32 and_or(u32 bits, u32 mask, u32 set) {
    u32 found;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(found) : "r"(bits), "r"(mask), "r"(set));
    return found;
}

// add.rn.f16x2
__device__ __forceinline__ u32 add_f16x2(u32 a, u32 b) {
    u32 found;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

// sub.rn.f16x2
__device__ __forceinline__ u32 sub_f16x2(u32 a, u32 b) {
    u32 found;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

// mul.rn.f16x2
__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
    u32 found;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

// fma.rn.f16x2
__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 found;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(a), "r"(b), "r"(c));
    return found;
}

// ld.shared.v4.b32, from an address as cp.async takes it
__device__ __forceinline__ uint4 load_shared_16(u32 from) {
    uint4 found;
    asm volatile("ld.shared.v4.b32 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w) : "r"(from) : "memory");
    return found;
}

// ld.shared.b32
__device__ __forceinline__ u32 load_shared_4(u32 from) {
    u32 found;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(found) : "r"(from) : "memory");
    return found;
}

// cp.async.ca of kBytes (4 or 8), through L1. Where `real` is false nothing is read and zeros are written.
template <int kBytes>
__device__ __forceinline__ void cp_async_few(u32 to, const void* from, bool real) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(real ? kBytes : 0) : "memory");
}

}  // namespace evo


namespace evo {

// 8 elements to shared memory; of each row kVector divides the length, and so where it starts. Elements from
// `left` on are zeros and are not read. Single elements go through registers: cp.async has 4 bytes at least.
template <int kVector, class Element>
__device__ __forceinline__ void copy_chunk(unsigned char* to, const Element* from, int left) {
    if constexpr (kVector == 8) {
        cp_async_16(shared_address(to), from, left > 0);
    } else if constexpr (kVector > 1) {
#pragma unroll
        for (int i = 0; i < 8; i += kVector)
            cp_async_few<2 * kVector>(shared_address(to) + 2 * i, from + i, left > i);
    } else {
        u32 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 low = left > 2 * i ? from[2 * i].bits : 0u, high = left > 2 * i + 1 ? from[2 * i + 1].bits : 0u;
            pairs[i] = low | high << 16;
        }
        *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

// Starts copying a tile of kRows rows, by kThreads threads, each of which stays in its column. `from` is its first
// element, `leading` the distance of two rows. What is not among the `rows_left` and `columns_left` is zero.
template <class Layout, int kRows, int kThreads, int kVector, class Element>
__device__ __forceinline__ void copy_tile(unsigned char* tile, const Element* from, int leading, int rows_left,
                                          int columns_left) {
    constexpr int kStep = kThreads / Layout::kChunks;
    static_assert(kThreads % Layout::kChunks == 0, "a thread stays in its column");
    const int first = threadIdx.x / Layout::kChunks, chunk = threadIdx.x % Layout::kChunks;
    const Element* at = from + static_cast<long long>(first) * leading + 8 * chunk;
#pragma unroll
    for (int pass = 0; pass < (kRows + kStep - 1) / kStep; ++pass) {
        const int row = first + pass * kStep;
        if (kRows % kStep == 0 || row < kRows)
            copy_chunk<kVector>(tile + Layout::offset(row, chunk), at, row < rows_left ? columns_left - 8 * chunk : 0);
        at += static_cast<long long>(kStep) * leading;
    }
}

// An operand of the product: kAcross rows of A, or columns of B, by kDepth elements of K. Along K in memory, or
// across it: then ldmatrix transposes.
template <class Element, bool kAlongK, int kAcross, int kDepth, Swizzle kSwizzle, int kVector, int kThreads>
struct Operand {
    using Layout = RowLayout<kAlongK ? kDepth : kAcross, kSwizzle>;
    static constexpr int kRows = kAlongK ? kAcross : kDepth;
    using Shared = Tile<Layout, kRows>;

    const Element* matrix;
    int leading, first, across, depth;  // of the tile along M or N; how many there are; K

    __device__ __forceinline__ void copy(Shared& tile, int at) const {
        const int left_across = across - first, left_depth = depth - at;
        const long long row = kAlongK ? first : at, column = kAlongK ? at : first;
        copy_tile<Layout, kRows, kThreads, kVector>(tile.bytes, matrix + row * leading + column, leading,
                                                    kAlongK ? left_across : left_depth,
                                                    kAlongK ? left_depth : left_across);
    }

    // Registers a0 to a3 of 16 rows of A from `row` of the tile, 16 elements of K from 16 `step`.
    static __device__ __forceinline__ void load_rows(u32 (&a)[4], u32 tile, int row, int step, int lane) {
        if constexpr (kAlongK)
            ldmatrix_x4(a, tile + Layout::offset(row + (lane & 15), 2 * step + (lane >> 4)));
        else
            ldmatrix_x4_trans(a, tile + Layout::offset(16 * step + (lane & 7) + (lane >> 4) * 8, row / 8 + (lane >> 3 & 1)));
    }

    // Registers b0, b1 of 8 columns of B from `column`, then of the next 8.
    static __device__ __forceinline__ void load_columns(u32 (&b)[4], u32 tile, int column, int step, int lane) {
        if constexpr (kAlongK)
            ldmatrix_x4(b, tile + Layout::offset(column + (lane & 7) + (lane >> 4) * 8, 2 * step + (lane >> 3 & 1)));
        else
            ldmatrix_x4_trans(b, tile + Layout::offset(16 * step + (lane & 15), column / 8 + (lane >> 4)));
    }
};

}  // namespace evo

// work.cuh
// Which part of which tile of C a CTA computes, where it leaves sums that are not whole, and who adds them up.
// last_cta.cuh
// The last of several CTAs to arrive finishes what all of them have left in global memory.


namespace evo {

// Called by all threads of a CTA after their stores. True in the CTA that is the last of `count` at this ticket:
// it sees what the others stored. The ticket is 0 before the first arrival and after the last one. `last` is
// shared memory that nothing else uses meanwhile.
__device__ __forceinline__ bool arrives_last(u32* ticket, u32 count, u32& last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == count - 1;
    __syncthreads();
    if (!last) return false;
    __threadfence();
    if (threadIdx.x == 0) *ticket = 0;
    return true;
}

}  // namespace evo


namespace evo {

// Tiles in panels of kPanel rows of tiles: neighbours in time share rows of A and columns of B in the L2 cache.
template <int kPanel>
__device__ __forceinline__ void place_of_tile(int index, int tiles_down, int tiles_across, int& down, int& across) {
    if constexpr (kPanel == 1) {
        down = index / tiles_across, across = index % tiles_across;
    } else {
        const int panel = index / (kPanel * tiles_across), first = panel * kPanel, within = index % (kPanel * tiles_across);
        const int height = min(kPanel, tiles_down - first);
        down = first + within % height, across = within / height;
    }
}

// A part of a tile: its steps along K, how many parts the tile has, and where all of them leave their sums.
struct Segment {
    int tile, begin, end;  // steps of K
    int parts, slot;       // of this part
    int first_slot;        // of the tile's first part
    int next_slot;         // of its second; the others follow by `stride`
    int stride;

    __device__ __forceinline__ int slot_of(int part) const {
        return part == 0 ? first_slot : next_slot + (part - 1) * stride;
    }
};

// Each tile's `steps` in kSplit parts, a CTA each.
template <int kSplit>
__device__ __forceinline__ Segment split_tile(int cta, int steps) {
    const int tile = cta / kSplit, part = cta % kSplit, first = tile * kSplit;
    const int begin = static_cast<int>(static_cast<long long>(steps) * part / kSplit);
    const int end = static_cast<int>(static_cast<long long>(steps) * (part + 1) / kSplit);
    return {tile, begin, end, kSplit, cta, first, first + 1, 1};
}

// All steps of all tiles in one row, cut into as many equal pieces as there are CTAs (Osama et al., "Stream-K",
// 2023). A CTA has at most one part that does not begin its tile, its first (slot 2 c), and at most one that
// begins it and does not end it, its last (slot 2 c + 1). There are at least as many steps as CTAs.
struct Stream {
    long long steps, all, at, end;
    int ctas;

    __device__ __forceinline__ Stream(int cta, int ctas, int tiles, int steps_of_tile)
        : steps(steps_of_tile), all(static_cast<long long>(tiles) * steps_of_tile), ctas(ctas) {
        at = all * cta / ctas, end = all * (cta + 1) / ctas;
    }
    __device__ __forceinline__ bool more() const { return at < end; }

    // The CTA that has a step.
    __device__ __forceinline__ int cta_of(long long step) const { return static_cast<int>(((step + 1) * ctas - 1) / all); }

    __device__ __forceinline__ Segment next() {
        const long long tile = at / steps, first = tile * steps, last = first + steps;
        const long long until = min(end, last);
        const int begins = cta_of(first), ends = cta_of(last - 1), own = cta_of(at);
        const Segment found{static_cast<int>(tile), static_cast<int>(at - first), static_cast<int>(until - first),
                            ends - begins + 1, at == first ? 2 * own + 1 : 2 * own, 2 * begins + 1,
                            2 * (begins + 1), 2};
        at = until;
        return found;
    }
};

// Leaves the sums of a part, four by four, thread by thread, and in the CTA that comes last gets those of the whole
// tile, added up in the order of the parts. False in the others.
template <int kThreads, int kDown, int kAcross>
__device__ __forceinline__ bool join_parts(float (&sums)[kDown][kAcross][4], const Segment& part, float4* partials,
                                           u32* tickets, u32& last) {
    constexpr int kFours = kDown * kAcross;
    const auto slot = [&](int number) {
        return partials + static_cast<long long>(number) * (kFours * kThreads) + threadIdx.x;
    };
    float4* const own = slot(part.slot);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        const auto& four = sums[i / kAcross][i % kAcross];
        own[i * kThreads] = make_float4(four[0], four[1], four[2], four[3]);
    }
    if (!arrives_last(tickets + part.tile, part.parts, last)) return false;
    for (int other = 0; other < part.parts; ++other) {
        const float4* const from = slot(part.slot_of(other));
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            auto& four = sums[i / kAcross][i % kAcross];
            const float4 more = from[i * kThreads];
            if (other == 0) four[0] = four[1] = four[2] = four[3] = 0.f;
            four[0] += more.x, four[1] += more.y, four[2] += more.z, four[3] += more.w;
        }
    }
    return true;
}

}  // namespace evo


namespace evo {

// ---- knobs ----
using Element = Fp16;
constexpr bool kAAlongK = false;
constexpr bool kBAlongK = false;
constexpr Finish kFinish = Finish::bias_gelu_;
constexpr bool kWideOut = false;     // C is fp32
constexpr int kVectorA = 8;      // elements that divide the rows of A, B and C
constexpr int kVectorB = 8;
constexpr int kVectorC = 8;
constexpr int kBM = 64;
constexpr int kBN = 64;
constexpr int kBK = 32;
constexpr int kWarpsM = 2;        // warps over the rows of a tile
constexpr int kWarpsN = 2;        // and over its columns
constexpr int kStages = 4;
constexpr Swizzle kSwizzle = Swizzle::pad_;
constexpr bool kStream = 1;  // all steps of all tiles in equal pieces
constexpr int kSplit = 1;           // CTAs that share K of a tile
constexpr int kPanel = 8;           // rows of tiles that are walked through together
constexpr bool kThroughShared = 1;  // C goes through shared memory
constexpr int kMinCtas = 1;      // CTAs an SM that registers are capped for
constexpr int kSmemBytes = 36880;
// ---- end of knobs ----

constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kBlocksM = kBM / (16 * kWarpsM);  // blocks of 16 rows a warp
constexpr int kBlocksN = kBN / (8 * kWarpsN);   // blocks of 8 columns
static_assert(kBlocksM * 16 * kWarpsM == kBM && kBlocksN * 8 * kWarpsN == kBN && kBlocksN % 2 == 0, "whole blocks");
constexpr bool kParts = kStream || kSplit > 1;

template <bool kWide> struct OutOf { using type = Element; };
template <> struct OutOf<true> { using type = float; };
using Out = OutOf<kWideOut>::type;
using Other = OperandOf<Element, kFinish>::type;
using OperandA = Operand<Element, kAAlongK, kBM, kBK, kSwizzle, kVectorA, kThreads>;
using OperandB = Operand<Element, kBAlongK, kBN, kBK, kSwizzle, kVectorB, kThreads>;

struct Stage {
    OperandA::Shared a;
    OperandB::Shared b;
};
struct OutTile {
    static constexpr int kPitch = kBN + 16 / sizeof(Out);
    alignas(16) Out rows[kBM][kPitch];
};
struct SharedStorage {
    union {  // C takes the ring's place
        Stage ring[kStages];
        OutTile out;
    };
    alignas(16) u32 last;
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

using Sums = float[kBlocksM][kBlocksN][4];

// What a launch computes, and where a thread stands in it.
struct Product {
    const Element* a;
    const Element* b;
    const Other* other;
    Out* c;
    int m, n, k, lda, ldb;
    int tiles_down, tiles_across, steps;

    __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }
    __device__ __forceinline__ int row_of_warp() const { return threadIdx.x / 32 % kWarpsM * (16 * kBlocksM); }
    __device__ __forceinline__ int column_of_warp() const { return threadIdx.x / 32 / kWarpsM * (8 * kBlocksN); }
};

__device__ __forceinline__ void multiply(Sums& sums, const Stage& stage, const Product& at) {
    const u32 a_tile = shared_address(stage.a.bytes), b_tile = shared_address(stage.b.bytes);
#pragma unroll
    for (int step = 0; step < kBK / 16; ++step) {
        u32 a[kBlocksM][4], b[kBlocksN / 2][4];
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) OperandA::load_rows(a[i], a_tile, at.row_of_warp() + 16 * i, step, at.lane());
#pragma unroll
        for (int j = 0; j < kBlocksN / 2; ++j)
            OperandB::load_columns(b[j], b_tile, at.column_of_warp() + 16 * j, step, at.lane());
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j) Element::mma(sums[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
    }
}

// The sums of steps `begin` to before `end` of a tile.
__device__ __forceinline__ void accumulate(SharedStorage& shared, Sums& sums, const OperandA& a, const OperandB& b,
                                           int begin, int end, const Product& at) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.f;
    const auto copy = [&](int step) {  // commits also where there is no step, so that waits can count
        if (step < end) {
            Stage& stage = shared.ring[(step - begin) % kStages];
            a.copy(stage.a, step * kBK);
            b.copy(stage.b, step * kBK);
        }
        cp_async_commit();
    };
    for (int i = 0; i < kStages - 1; ++i) copy(begin + i);
    for (int step = begin; step < end; ++step) {
        cp_async_wait<kStages - 2>();
        __syncthreads();  // this step's tiles are here for all, and those of the last one are free
        copy(step + kStages - 1);
        multiply(sums, shared.ring[(step - begin) % kStages], at);
    }
    cp_async_wait<0>();
}

// Two neighbouring elements of C, the first of them in an even column.
__device__ __forceinline__ void store_pair(const Product& at, int matrix, int row, int column, float first, float second) {
    if (row >= at.m) return;
    Out* const to = at.c + (static_cast<long long>(matrix) * at.m + row) * at.n + column;
    const auto finish = [&](float sum, int offset) {
        float more = 0.f;
        more = widened(at.other[operand_offset<kFinish>(matrix, row, column + offset, at.m, at.n)]);
        return finished<kFinish>(sum, more);
    };
    if constexpr (kVectorC > 1) {
        if (column >= at.n) return;
        const float x = finish(first, 0), y = finish(second, 1);
        if constexpr (kWideOut) *reinterpret_cast<float2*>(to) = make_float2(x, y);
        else *reinterpret_cast<u32*>(to) = Element::pack(x, y);
    } else {
        if (column < at.n) put(to, finish(first, 0));
        if (column + 1 < at.n) put(to + 1, finish(second, 1));
    }
}

// Finished sums through shared memory: 16 bytes a store, whole rows of the tile next to each other.
__device__ __forceinline__ void store_through_shared(SharedStorage& shared, const Sums& sums, const Product& at,
                                                     int matrix, int first_row, int first_column) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = at.row_of_warp() + 16 * i + 8 * half + at.lane() / 4;
                const int column = at.column_of_warp() + 8 * j + 2 * (at.lane() % 4);
                float pair[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float more = 0.f;
                    if (first_row + row < at.m && first_column + column < at.n)
                        more = widened(at.other[operand_offset<kFinish>(matrix, first_row + row, first_column + column + e,
                                                                        at.m, at.n)]);
                    pair[e] = finished<kFinish>(sums[i][j][2 * half + e], more);
                }
                Out* const to = &shared.out.rows[row][column];
                if constexpr (kWideOut) *reinterpret_cast<float2*>(to) = make_float2(pair[0], pair[1]);
                else *reinterpret_cast<u32*>(to) = Element::pack(pair[0], pair[1]);
            }
    __syncthreads();
    constexpr int kEach = 16 / sizeof(Out), kChunks = kBN / kEach;
#pragma unroll 4
    for (int i = threadIdx.x; i < kBM * kChunks; i += kThreads) {
        const int row = i / kChunks, column = i % kChunks * kEach;
        if (first_row + row < at.m && first_column + column < at.n)
            *reinterpret_cast<uint4*>(at.c + (static_cast<long long>(matrix) * at.m + first_row + row) * at.n +
                                      first_column + column) =
                *reinterpret_cast<const uint4*>(&shared.out.rows[row][column]);
    }
}
// One part of a tile, and the tile's end where it is the last part.
__device__ __forceinline__ void compute(SharedStorage& shared, const Product& at, const Segment& part, float4* partials,
                                        u32* tickets) {
    const int of_matrix = at.tiles_down * at.tiles_across, matrix = part.tile / of_matrix;
    int down, across;
    place_of_tile<kPanel>(part.tile % of_matrix, at.tiles_down, at.tiles_across, down, across);
    const int first_row = down * kBM, first_column = across * kBN;
    const OperandA a{at.a + static_cast<long long>(matrix) * (kAAlongK ? at.m : at.k) * at.lda, at.lda, first_row, at.m, at.k};
    const OperandB b{at.b + static_cast<long long>(matrix) * (kBAlongK ? at.n : at.k) * at.ldb, at.ldb, first_column, at.n, at.k};
    Sums sums;
    accumulate(shared, sums, a, b, part.begin, part.end, at);
    if constexpr (kParts) {
        if (part.parts > 1 && !join_parts<kThreads>(sums, part, partials, tickets, shared.last)) return;
    }
    __syncthreads();  // the ring is read
    store_through_shared(shared, sums, at, matrix, first_row, first_column);
}

}  // namespace evo

// Grid: a CTA for each part of a tile; with kStream any number of CTAs, not more than steps. `partials` and
// `tickets` have room for the parts and the tiles.
extern "C" __global__ void __launch_bounds__(evo::kThreads, evo::kMinCtas)
gemm_mma(const evo::Element* a, const evo::Element* b,
         const evo::Other* other,
         evo::Out* c,
         float4* partials, evo::u32* tickets,
         int m, int n, int k, int lda, int ldb, [[maybe_unused]] int batch) {
    using namespace evo;
    extern __shared__ __align__(128) unsigned char shared_memory[];
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(shared_memory);
    const Product at{a, b, other, c, m, n, k, lda, ldb, (m + kBM - 1) / kBM, (n + kBN - 1) / kBN, (k + kBK - 1) / kBK};
    for (Stream stream(blockIdx.x, gridDim.x, at.tiles_down * at.tiles_across * batch, at.steps); stream.more();) {
        compute(shared, at, stream.next(), partials, tickets);
        __syncthreads();  // the next part begins with the ring
    }
}

// C = A B for a few rows of A by fp32 multiply-adds, K along both in memory, rows of any length: B passes through
// registers once, as wide as its rows allow. A warp takes kColumns columns over its share of K, kUnroll accesses of
// each lane at once. kDepthWarps warps and kSplit CTAs share K and join at the end.
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

// join.cuh
// Sums over K that several warps, and several CTAs, hold parts of: joined in one order, whoever comes last, so
// that the same inputs have the same bits.
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

// Parts of a tile of kRows x kColumns sums, one for each of kParts (groups of) warps, in shared memory.
// Rows lie so far apart that the lanes of an accumulator, which hold two rows each, meet other banks.
template <int kParts, int kRows, int kColumns>
struct PartialSums {
    static constexpr int kPitch = kColumns + 4;
    float part[kParts][kRows][kPitch];

    // Leaves the accumulators of a warp, whose 16 rows are columns here: kStrips strips from `column` on, kBlocks
    // blocks of 8 of their columns, which are rows here.
    template <int kStrips, int kBlocks>
    __device__ __forceinline__ void leave(int of, int column, const float (&sums)[kStrips][kBlocks][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int strip = 0; strip < kStrips; ++strip)
#pragma unroll
            for (int block = 0; block < kBlocks; ++block)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    part[of][8 * block + 2 * (lane % 4) + e % 2][column + 16 * strip + lane / 4 + 8 * (e / 2)] =
                        sums[strip][block][e];
    }

    __device__ __forceinline__ float total(int row, int column) const {
        float sum = part[0][row][column];
#pragma unroll
        for (int i = 1; i < kParts; ++i) sum += part[i][row][column];
        return sum;
    }
};

// Called by all kThreads threads once the parts are there, after a barrier: `store(row, column, sum)` gets the
// sums of the first `rows` rows. With kSplit CTAs a tile, each leaves its own in `partials`, [tile][split][row]
// [column], and the last one to come adds them up in the order of the splits.
template <int kSplit, int kThreads, int kParts, int kRows, int kColumns, class Store>
__device__ __forceinline__ void join(const PartialSums<kParts, kRows, kColumns>& sums, int rows, int tile, int split,
                                     float* partials, u32* tickets, u32& last, Store store) {
    if constexpr (kSplit == 1) {
        for (int i = threadIdx.x; i < rows * kColumns; i += kThreads)
            store(i / kColumns, i % kColumns, sums.total(i / kColumns, i % kColumns));
    } else {
        constexpr int kTile = kRows * kColumns;
        float* const of_tile = partials + static_cast<long long>(tile) * (kSplit * kTile);
        for (int i = threadIdx.x; i < rows * kColumns; i += kThreads)
            of_tile[split * kTile + i] = sums.total(i / kColumns, i % kColumns);
        if (!arrives_last(tickets + tile, kSplit, last)) return;
        for (int i = threadIdx.x; i < rows * kColumns; i += kThreads) {
            float sum = of_tile[i];
#pragma unroll
            for (int other = 1; other < kSplit; ++other) sum += of_tile[other * kTile + i];
            store(i / kColumns, i % kColumns, sum);
        }
    }
}

}  // namespace evo

// chunk.cuh
// Up to 16 bytes of a row, moved by one instruction, and their elements as floats.

// evict.cuh
// What the L2 cache is told to keep, and loads that tell it (sm_80): one function per PTX instruction.


namespace evo {

// createpolicy.fractional: what is read by it leaves the L2 cache first.
__device__ __forceinline__ u64 evict_first_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// createpolicy.fractional: what is read by it leaves the L2 cache last.
__device__ __forceinline__ u64 evict_last_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// ld.global with a policy: 4, 8 or 16 bytes.
__device__ __forceinline__ u32 load_global(const u32* from, u64 policy) {
    u32 found;
    asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;"
                 : "=r"(found) : "l"(__cvta_generic_to_global(from)), "l"(policy));
    return found;
}
__device__ __forceinline__ uint2 load_global(const uint2* from, u64 policy) {
    uint2 found;
    asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(found.x), "=r"(found.y) : "l"(__cvta_generic_to_global(from)), "l"(policy));
    return found;
}
__device__ __forceinline__ uint4 load_global(const uint4* from, u64 policy) {
    uint4 found;
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "l"(__cvta_generic_to_global(from)), "l"(policy));
    return found;
}

}  // namespace evo


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


namespace evo {

// ---- knobs ----
using Element = Bf16;
constexpr Finish kFinish = Finish::bias_silu_;
constexpr bool kWideOut = false;      // C is fp32
constexpr int kVector = 1;          // elements an access
constexpr int kRows = 4;              // rows of A a CTA
constexpr int kColumns = 1;        // columns a warp
constexpr int kUnroll = 2;          // accesses of a lane to each column at once
constexpr int kTogether = 2;      // of these, to each row of A at once
constexpr int kSideWarps = 1;   // warps next to each other along N
constexpr int kDepthWarps = 4;  // warps that share K
constexpr int kSplit = 2;            // CTAs that share K
constexpr Caching kLoads = Caching::usual_;  // of B
constexpr int kAhead = 0;            // steps of B that are read ahead
constexpr int kMinCtas = 1;       // CTAs an SM that registers are capped for
constexpr int kSmemBytes = 336;
// ---- end of knobs ----

constexpr int kAccess = 32 * kVector;          // elements of K an access of a warp: parts of K are so many, or one more
constexpr int kStep = kAccess * kUnroll;       // of a step
constexpr int kThreads = 32 * kSideWarps * kDepthWarps;

template <bool kWide> struct OutOf { using type = Element; };
template <> struct OutOf<true> { using type = float; };
using Out = OutOf<kWideOut>::type;
using Other = OperandOf<Element, kFinish>::type;
using Access = Chunk<Element, kVector>;

struct SharedStorage {
    PartialSums<kDepthWarps, kRows, kColumns * kSideWarps> sums;
    alignas(16) u32 last;
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

// What a lane reads of one step of B.
using StepOfB = Access[kUnroll][kColumns];

// Where a lane is in the first of its columns of B and of the rows of A, at one step of K, of which `left` elements are
// left for it. `whole`: all columns and rows are real.
struct Place {
    const Element *a, *b;
    int lda, ldb, left, rows, columns;
    bool whole;

    // Whether the whole warp has a whole step to read, and nothing is asked about. Not where A is read in several groups:
    // then ptxas would read them all at once.
    __device__ __forceinline__ bool full() const {
        return kTogether == kUnroll && whole && left + static_cast<int>(threadIdx.x % 32) * kVector >= kStep;
    }
    __device__ __forceinline__ void advance() { a += kStep, b += kStep, left -= kStep; }
    // Columns are at distances from here: the compiler otherwise makes an address of each, in all ways that it may take.
    __device__ __forceinline__ void hold() { asm("" : "+l"(a), "+l"(b)); }
};

template <bool kFull>
__device__ __forceinline__ void read_b(StepOfB& found, const Place& at) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
            if (!kFull) found[u][j] = {};
            if (kFull || (u * kAccess < at.left && j < at.columns))
                found[u][j].load<kLoads>(at.b + static_cast<long long>(j) * at.ldb + u * kAccess);
        }
}

// kTogether accesses to each row of A, from access `first` of a step on.
template <bool kFull>
__device__ __forceinline__ void read_a(Access (&found)[kTogether][kRows], const Place& at, int first) {
#pragma unroll
    for (int u = 0; u < kTogether; ++u)
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            if (!kFull) found[u][i] = {};
            if (kFull || ((first + u) * kAccess < at.left && i < at.rows))
                found[u][i].load_constant(at.a + static_cast<long long>(i) * at.lda + (first + u) * kAccess);
        }
}

// Adds the products of one step, of which B is there or, where `b_too`, is read now.
template <bool kFull>
__device__ __forceinline__ void add_step(float (&sums)[kRows * kColumns], StepOfB& of_b, const Place& at, bool b_too) {
    if (b_too) read_b<kFull>(of_b, at);
#pragma unroll
    for (int group = 0; group < kUnroll; group += kTogether) {
        Access of_a[kTogether][kRows];
        read_a<kFull>(of_a, at, group);  // the first are asked for before B is waited for
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
            float x[kColumns][kVector];
#pragma unroll
            for (int j = 0; j < kColumns; ++j) of_b[group + u][j].floats(x[j]);
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                float y[kVector];
                of_a[u][i].floats(y);
#pragma unroll
                for (int j = 0; j < kColumns; ++j)
#pragma unroll
                    for (int e = 0; e < kVector; ++e) {
                        float& sum = sums[i * kColumns + j];
                        sum = fmaf(y[e], x[j][e], sum);
                    }
            }
        }
    }
}

// The sums of a warp's columns with all rows, over `count` elements of K; of one lane's part of them.
__device__ __forceinline__ void accumulate(float (&sums)[kRows * kColumns], Place at, int count) {
    StepOfB of_b, next;
    if (kAhead && count > 0) {
        if (at.full()) read_b<true>(next, at);
        else read_b<false>(next, at);
    }
    for (int step = 0; step < count; step += kStep) {
        at.hold();
        if (kAhead) {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
#pragma unroll
                for (int j = 0; j < kColumns; ++j) of_b[u][j] = next[u][j];
            Place ahead = at;
            ahead.advance();
            if (ahead.full()) read_b<true>(next, ahead);
            else read_b<false>(next, ahead);
        }
        if (at.full()) add_step<true>(sums, of_b, at, !kAhead);
        else add_step<false>(sums, of_b, at, !kAhead);
        at.advance();
    }
}

// Adds up over the lanes each of kCount sums, a power of two: lane i has the whole of sum i / (32 / kCount) then. Lanes
// exchange halves of the sums as long as there are two: four sums take 6 shuffles so, not 20.
template <int kCount>
__device__ __forceinline__ float added_up(float (&sums)[kCount]) {
    static_assert(kCount <= 32);
    int distance = 16;
#pragma unroll
    for (int half = kCount / 2; half; half /= 2, distance /= 2) {
        const bool upper = threadIdx.x & distance;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const float own = upper ? sums[i + half] : sums[i], other = upper ? sums[i] : sums[i + half];
            sums[i] = own + __shfl_xor_sync(~0u, other, distance);
        }
    }
#pragma unroll
    for (; distance; distance /= 2) sums[0] += __shfl_xor_sync(~0u, sums[0], distance);
    return sums[0];
}

}  // namespace evo

// Grid: tiles of columns x parts of K x blocks of rows of all matrices. With kSplit > 1 `partials` and `tickets` have
// room for all tiles.
extern "C" __global__ void __launch_bounds__(evo::kThreads, evo::kMinCtas)
gemv(const evo::Element* a, const evo::Element* b,
     const evo::Other* other,
     evo::Out* c,
     float* partials, evo::u32* tickets,
     int m, int n, int k, int lda, int ldb, [[maybe_unused]] int batch) {
    using namespace evo;
    extern __shared__ __align__(16) unsigned char shared_memory[];
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(shared_memory);
    int matrix = 0, first_row = 0;
    if (gridDim.z > 1) {  // divisions, and products of 64 bits, take as long as all else that comes before the first access
        const int blocks = (m + kRows - 1) / kRows;
        matrix = blockIdx.z / blocks, first_row = blockIdx.z % blocks * kRows;
        a += (static_cast<long long>(matrix) * m + first_row) * lda;
        b += static_cast<long long>(matrix) * n * ldb;
    }
    const int warp = threadIdx.x / 32, side = warp % kSideWarps, depth = warp / kSideWarps;
    const int first_column = blockIdx.x * (kColumns * kSideWarps), column = first_column + side * kColumns;
    const u32 accesses = (k + kAccess - 1) / kAccess, part = blockIdx.y * kDepthWarps + depth;
    const int begin = accesses * part / (kSplit * kDepthWarps) * kAccess;
    const int end = min(k, static_cast<int>(accesses * (part + 1) / (kSplit * kDepthWarps) * kAccess));
    const int own = begin + threadIdx.x % 32 * kVector;  // the first element of K that the lane reads
    const bool whole = m - first_row >= kRows && n - column >= kColumns;
    const Place at{a + own, b + static_cast<long long>(column) * ldb + own, lda, ldb, end - own, m - first_row,
                   n - column, whole};
    float sums[kRows * kColumns] = {};
    accumulate(sums, at, end - begin);
    const float sum = added_up(sums);
    constexpr int kLanes = 32 / (kRows * kColumns);  // that have the same
    if (const int which = threadIdx.x % 32 / kLanes; threadIdx.x % kLanes == 0)
        shared.sums.part[depth][which / kColumns][side * kColumns + which % kColumns] = sum;
    __syncthreads();
    const auto store = [&](int down, int across, float sum) {
        const int to_row = first_row + down, to_column = first_column + across;
        if (to_column >= n) return;
        float more = 0.f;
        more = widened(other[operand_offset<kFinish>(matrix, to_row, to_column, m, n)]);
        put(c + (static_cast<long long>(matrix) * m + to_row) * n + to_column, finished<kFinish>(sum, more));
    };
    join<kSplit, kThreads>(shared.sums, min(kRows, m - first_row), blockIdx.z * gridDim.x + blockIdx.x, blockIdx.y,
                           partials, tickets, shared.last, store);
}

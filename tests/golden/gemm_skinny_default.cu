// C = A B for few rows of A, K along both in memory: a stream of B that passes through each warp's registers once.
// Columns of C, rows of B in memory, are the 16 rows of mma.sync's m16n8k16, rows of A its 8 columns. A warp takes
// kStrips strips of 16 columns over its share of K. Its ring in shared memory is its own: each lane copies what it will
// read itself, or one lane starts bulk copies of rows. kDepthWarps warps and kSplit CTAs share K and join at the end.
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

// row_pieces.cuh
// Pieces of a matrix's rows in shared memory that bulk copies bring there (sm_90).
// bulk.cuh
// Bulk copies without a tensor map (sm_90): one function per PTX instruction.
// mbarrier.cuh
// Barriers in shared memory that count arrivals and bytes of asynchronous copies (sm_90): one function per PTX
// instruction. A barrier's phases alternate in parity; the first one has parity 0.


namespace evo {

// mbarrier.init: a phase completes after `arrivals` arrivals and all bytes that were expected.
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

// fence.mbarrier_init: initialised barriers, for the cluster and for the asynchronous copies to see.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// fence.proxy.async: what ordinary stores wrote, for asynchronous copies and wgmma to see.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// mbarrier.arrive
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// mbarrier.arrive, at the same place in the shared memory of CTA `rank` of the cluster. For what wgmma has read: nothing
// waits. With ordinary accesses before it, it orders those of this CTA alone.
__device__ __forceinline__ void mbarrier_arrive_at(u32 barrier, u32 rank) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}" :: "r"(barrier), "r"(rank) : "memory");
}

// mbarrier.arrive.release.cluster: the same after ordinary accesses, for all of the cluster. In machine code it begins
// with MEMBAR.ALL.GPU, a way to L2 and back: once a tile, not in each step.
__device__ __forceinline__ void mbarrier_release_at(u32 barrier, u32 rank) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
                 "}" :: "r"(barrier), "r"(rank) : "memory");
}

// mbarrier.arrive.expect_tx: one arrival that also announces `bytes`.
__device__ __forceinline__ void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

// mbarrier.try_wait: returns once the phase of that parity is complete.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
    u32 complete;
    do {
        asm volatile("{\n"
                     ".reg .pred complete;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, complete;\n"
                     "}" : "=r"(complete) : "r"(barrier), "r"(parity) : "memory");
    } while (!complete);
}

// The same, and what other CTAs of the cluster wrote before they arrived is visible.
__device__ __forceinline__ void mbarrier_wait_cluster(u32 barrier, u32 parity) {
    u32 complete;
    do {
        asm volatile("{\n"
                     ".reg .pred complete;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, complete;\n"
                     "}" : "=r"(complete) : "r"(barrier), "r"(parity) : "memory");
    } while (!complete);
}

// elect.sync: true in one lane of a converged warp.
__device__ __forceinline__ bool elect_lane() {
    u32 elected;
    asm volatile("{\n"
                 ".reg .pred elected;\n"
                 "elect.sync _|elected, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, elected;\n"
                 "}" : "=r"(elected) :: "memory");
    return elected;
}

}  // namespace evo


namespace evo {

// cp.async.bulk: `bytes`, a multiple of 16, from and to multiples of 16; they count at `barrier`.
__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier) : "memory");
}

// The same with a policy of the L2 cache.
__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}

}  // namespace evo

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

// kBytes of each of kRows rows, in whole 128s. 8 lanes that read 16 bytes each, 4 of one row and 4 of the next, meet the
// same banks. Room between the rows would avoid that, but bulk copies to rows that do not begin at 128 bytes take longer.
template <int kRows, int kBytes>
struct RowPieces {
    static_assert(kBytes % 128 == 0, "rows begin at 128 bytes, as what holds them does");
    alignas(16) unsigned char row[kRows][kBytes];

    __device__ __forceinline__ uint4& at(int down, int byte) { return *reinterpret_cast<uint4*>(&row[down][byte]); }
    __device__ __forceinline__ const uint4& at(int down, int byte) const {
        return *reinterpret_cast<const uint4*>(&row[down][byte]);
    }

    // Starts copying `bytes` of each of `count` rows that lie `pitch` elements apart; they count at `barrier`. Rows
    // from `real` on are the one before again. One thread calls it.
    template <bool kEvictFirst, class Element>
    __device__ __forceinline__ void copy(const Element* from, long long pitch, int count, int real, u32 bytes,
                                         u32 barrier) {
        u64 policy = 0;
        if constexpr (kEvictFirst) policy = evict_first_policy();
        const u32 to = shared_address(row);
#pragma unroll 8
        for (int i = 0; i < count; ++i) {
            if constexpr (kEvictFirst) bulk_load(to + i * kBytes, from, bytes, barrier, policy);
            else bulk_load(to + i * kBytes, from, bytes, barrier);
            if (i + 1 < real) from += pitch;
        }
    }
};

}  // namespace evo

namespace evo {

// ---- knobs ----
using Element = Fp16;
constexpr Finish kFinish = Finish::none_;
constexpr bool kWideOut = false;      // C is fp32
constexpr int kBlocks = 1;          // blocks of 8 rows of A a CTA
constexpr int kStrips = 1;          // strips of 16 columns a warp
constexpr int kSideWarps = 1;   // warps next to each other along N
constexpr int kDepthWarps = 8;  // warps that share K
constexpr bool kInTurns = 1;  // a step each in turns, not a range each
constexpr int kSplit = 1;            // CTAs that share K
constexpr int kTiles = 4;    // times 64 elements of K a stage
constexpr int kStages = 1;
constexpr bool kRingOfA = 0;  // A comes through the ring, too
constexpr bool kEvictFirst = 0;  // B leaves the L2 cache before anything else
constexpr int kMinCtas = 1;       // CTAs an SM that registers are capped for
constexpr int kSmemBytes = 65616;
// ---- end of knobs ----

constexpr int kStep = 64 * kTiles;
constexpr int kRows = 8 * kBlocks;
constexpr int kWarps = kSideWarps * kDepthWarps;
constexpr int kThreads = 32 * kWarps;
constexpr int kColumns = 16 * kStrips * kSideWarps;
constexpr int kStride = kStep * (kInTurns ? kDepthWarps : 1);  // along K from a warp's step to its next
constexpr int kRanges = kSplit * (kInTurns ? 1 : kDepthWarps);
constexpr int kAhead = kTiles < 4 / kBlocks ? 2 * kTiles : 8 / kBlocks;  // pieces of A that are read ahead
template <bool kWide> struct OutOf { using type = Element; };
template <> struct OutOf<true> { using type = float; };
using Out = OutOf<kWideOut>::type;
using Other = OperandOf<Element, kFinish>::type;

// What a warp copies of one step. A lane has of each 64 elements two pieces of 8: neighbouring lanes read neighbouring
// pieces.
struct Stage {
    RowPieces<16 * kStrips, 2 * kStep> b;
};

using Sums = PartialSums<kDepthWarps, kRows, kColumns>;

struct SharedStorage {
    union {  // sums take the rings' place
        Stage ring[kWarps][kStages];
        Sums sums;
    };
    alignas(16) u64 full[kWarps][kStages];
    alignas(16) u32 last;
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

using Accumulator = float[kStrips][kBlocks][4];

// One lane of a warp: what it copies next, and what it multiplies next. Lanes whose row of A or column of C is not
// there take the last one: what they give is not stored.
struct Lane {
    const Element* a[kBlocks];
    const Element* b;
    int a_pitch, b_pitch, a_rows, b_rows;  // of the matrices; rows from the warp's first one on that are there
    u64* full;                      // a barrier for each stage
    u32 parity;                     // of the step that is read next
    uint4 ahead[kAhead][kBlocks];   // what is multiplied next of A
    Stage* ring;
    int lane, depth, count;         // steps of K that the warp takes
    int uncopied, written, read;    // steps that are not on their way yet; stages
    int copied, multiplied;         // along K, where the lane's next pieces begin

    __device__ __forceinline__ Lane(SharedStorage& shared, const Element* a_matrix, const Element* b_matrix, int m, int n,
                                    int k, int lda, int ldb, int row)
        : depth(k), written(0), read(0) {
        const int warp = threadIdx.x / 32, turn = kInTurns ? warp / kSideWarps : 0;
        const int range = kInTurns ? blockIdx.y : blockIdx.y * kDepthWarps + warp / kSideWarps;
        const int column = min((blockIdx.x * kSideWarps + warp % kSideWarps) * (16 * kStrips), n - 1);
        const long long steps = (k + kStep - 1) / kStep;
        const int first = static_cast<int>(steps * range / kRanges) + turn;
        const int left = static_cast<int>(steps * (range + 1) / kRanges) - first;
        lane = threadIdx.x % 32;
        ring = shared.ring[warp];
        count = left <= 0 ? 0 : (left * kStep + kStride - 1) / kStride;
        uncopied = count;
        copied = multiplied = first * kStep + 8 * (lane % 4);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
            a[block] = a_matrix + static_cast<long long>(min(row + 8 * block + lane / 4, m - 1)) * lda + copied;
        copied = first * kStep;
        a_pitch = lda, b_pitch = ldb, a_rows = min(kRows, m - row), b_rows = n - column;
        full = shared.full[warp], parity = 0;
        if (lane == 0) {
            for (int stage = 0; stage < kStages; ++stage) mbarrier_init(shared_address(&full[stage]), 1);
            fence_mbarrier_init();
        }
        __syncwarp();
#pragma unroll
        for (int piece = 0; piece < kAhead; ++piece)
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) ahead[piece][block] = piece_of_a(block, piece);
        b = b_matrix + static_cast<long long>(column) * ldb + copied;
    }

    // Starts copying the next step, if there is one. What lies behind the end of K is not copied.
    __device__ __forceinline__ void copy() {
        if (uncopied == 0) return;
        if (elect_lane()) {  // ptxas then takes uniform registers; for `lane == 0` it makes a loop around each copy
            const u32 bytes = 2 * min(kStep, depth - copied), barrier = shared_address(&full[written]);
            mbarrier_expect(barrier, bytes * (16 * kStrips + (kRingOfA ? a_rows : 0)));
            ring[written].b.template copy<kEvictFirst>(b, b_pitch, 16 * kStrips, b_rows, bytes, barrier);
        }
        b += kStride, copied += kStride;
        written = written + 1 == kStages ? 0 : written + 1;
        --uncopied;
    }

    // Until the next step is there. Behind the end of K, where no copy writes any more, the lane writes zeros.
    __device__ __forceinline__ void wait() {
        mbarrier_wait(shared_address(&full[read]), parity);
        if (read + 1 == kStages) parity ^= 1;
        if (multiplied - lane % 4 * 8 + kStep <= depth) return;
        for (int piece = 0; piece < 2 * kTiles; ++piece)
            if (multiplied + 32 * piece >= depth)
                for (int i = 0; i < 2 * kStrips; ++i)
                    ring[read].b.at(8 * i + lane / 4, 64 * piece + 16 * (lane % 4)) = make_uint4(0u, 0u, 0u, 0u);
    }
    // A piece of the step that is multiplied next or, behind its last one, of the step after it.
    __device__ __forceinline__ uint4 piece_of_a(int block, int piece) const {
        const int along = 32 * piece + (piece < 2 * kTiles ? 0 : kStride - kStep);
        if (multiplied + along >= depth) return make_uint4(0u, 0u, 0u, 0u);
        return __ldg(reinterpret_cast<const uint4*>(a[block] + along));
    }

    __device__ __forceinline__ uint4 eight_of_a(const Stage& stage, int block, int tile, int half) {
        const int piece = 2 * tile + half;
        const uint4 found = ahead[piece % kAhead][block];
        ahead[piece % kAhead][block] = piece_of_a(block, piece + kAhead);
        return found;
    }

    __device__ __forceinline__ uint4 eight_of_b(const Stage& stage, int strip, int lower, int tile, int half) const {
        return stage.b.at(16 * strip + 8 * lower + lane / 4, 128 * tile + 64 * half + 16 * (lane % 4));
    }

    // Adds the products of the next step, which has come.
    __device__ __forceinline__ void multiply(Accumulator& sums) {
        const Stage& stage = ring[read];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint4 a8[kBlocks];
#pragma unroll
                for (int block = 0; block < kBlocks; ++block) a8[block] = eight_of_a(stage, block, tile, half);
#pragma unroll
                for (int strip = 0; strip < kStrips; ++strip) {
                    const uint4 upper = eight_of_b(stage, strip, 0, tile, half);
                    const uint4 lower = eight_of_b(stage, strip, 1, tile, half);
                    const u32 early[4] = {upper.x, lower.x, upper.y, lower.y}, late[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
                    for (int block = 0; block < kBlocks; ++block) {
                        Element::mma(sums[strip][block], early, a8[block].x, a8[block].y);
                        Element::mma(sums[strip][block], late, a8[block].z, a8[block].w);
                    }
                }
            }
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) a[block] += kStride;
        multiplied += kStride;
        read = read + 1 == kStages ? 0 : read + 1;
    }
};

}  // namespace evo

// Grid: tiles of columns x parts of K x blocks of rows of all matrices. With kSplit > 1 `partials` and `tickets` have
// room for all tiles.
extern "C" __global__ void __launch_bounds__(evo::kThreads, evo::kMinCtas)
gemm_skinny(const evo::Element* a, const evo::Element* b,
            evo::Out* c,
            int m, int n, int k, int lda, int ldb, [[maybe_unused]] int batch) {
    using namespace evo;
    extern __shared__ __align__(128) unsigned char shared_memory[];
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(shared_memory);
    float* const partials = nullptr;
    u32* const tickets = nullptr;
    const int blocks = (m + kRows - 1) / kRows, matrix = blockIdx.z / blocks, first_row = blockIdx.z % blocks * kRows;
    Lane at(shared, a + static_cast<long long>(matrix) * m * lda, b + static_cast<long long>(matrix) * n * ldb, m, n, k,
            lda, ldb, first_row);
    Accumulator sums = {};
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) at.copy();
    for (int left = at.count; left > 0; --left) {
        at.wait();
        at.multiply(sums);
        __syncwarp();  // all lanes have read the step
        at.copy();     // where it lay
    }
    __syncthreads();  // all rings are read
    const int warp = threadIdx.x / 32;
    shared.sums.leave(warp / kSideWarps, warp % kSideWarps * (16 * kStrips), sums);
    __syncthreads();
    const auto store = [&](int down, int across, float sum) {
        const int row = first_row + down, column = blockIdx.x * kColumns + across;
        if (column >= n) return;
        float more = 0.f;
        put(c + (static_cast<long long>(matrix) * m + row) * n + column, finished<kFinish>(sum, more));
    };
    join<kSplit, kThreads>(shared.sums, min(kRows, m - first_row), blockIdx.z * gridDim.x + blockIdx.x, blockIdx.y,
                           partials, tickets, shared.last, store);
}

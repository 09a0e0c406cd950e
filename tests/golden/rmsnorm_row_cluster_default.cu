// RMSNorm of rows in the shared memory of a cluster: each is read once.
// shared.cuh
// A row in the shared memory of a cluster: each CTA copies its part there, some rows ahead, and reads it from there
// for each pass.
// bulk.cuh
// Bulk copies without a tensor map (sm_90): one function per PTX instruction.
// mbarrier.cuh
// Barriers in shared memory that count arrivals and bytes of asynchronous copies (sm_90): one function per PTX
// instruction. A barrier's phases alternate in parity; the first one has parity 0.
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

// twice.cuh
// A row that is read again for each pass: of any length, with few registers.
// chunk.cuh
// Up to 16 bytes of a row, moved by one instruction, and their elements as floats.
// element.cuh
// The two 16-bit storage types, as types: what differs between fp16 and bf16 is here and nowhere else.


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

// team.cuh
// The threads that share a row: some of a CTA, all of it, or all CTAs of a cluster. What they sum up together.


namespace evo {

// What the warps of a row tell each other: two turns of one state a warp, so that one barrier a sum is enough.
// A warp that writes a turn again has passed a barrier that all pass only when they have read that turn.
template <class State, int kWarps, int kCtas>
struct Exchange {
    State turns[2][kCtas * kWarps];
};

// kThreads threads of each of kCtas CTAs share a row; a CTA has kRows such teams (one where kCtas > 1).
template <class Operation, int kThreads, int kRows, int kCtas>
class Team {
    using State = typename Operation::State;
    static constexpr int kWarps = kThreads / 32, kFloats = sizeof(State) / sizeof(float);
    static_assert(kThreads % 32 == 0 && (kCtas == 1 || kRows == 1));

public:
    using Storage = Exchange<State, kWarps, kCtas>;
    static constexpr int kAll = kThreads * kCtas;

    __device__ __forceinline__ explicit Team(Storage* storages)
        : number_(kRows == 1 ? 0 : threadIdx.x / kThreads), rank_(0), storage_(storages + number_) {
        if constexpr (kCtas > 1) {
            asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank_));
            cluster_arrive_relaxed();  // nobody may write to a CTA that has not started
        }
    }

    // The caller's number among all threads of the row.
    __device__ __forceinline__ int thread() const { return rank_ * kThreads + (threadIdx.x - number_ * kThreads); }
    __device__ __forceinline__ int rank() const { return rank_; }
    __device__ __forceinline__ long long first_row() const {
        return static_cast<long long>(blockIdx.x / kCtas) * kRows + number_;
    }
    __device__ __forceinline__ long long next_row(long long row) const {
        return row + static_cast<long long>(gridDim.x / kCtas) * kRows;
    }

    // What Operation's join makes of all threads' states in pass kPass; every thread gets it.
    template <int kPass>
    __device__ __forceinline__ State join(State mine) {
        across_lanes<kPass, 32>(mine);
        if constexpr (kWarps * kCtas > 1) {
            constexpr int kStates = kWarps * kCtas;
            const int lane = threadIdx.x % 32, warp = (threadIdx.x - number_ * kThreads) / 32;
            State* const turn = storage_->turns[turn_];
            turn_ ^= 1;
            if constexpr (kCtas > 1) {
                if (fresh_) cluster_wait();
                fresh_ = false;
                if (lane < kCtas) tell(turn + rank_ * kWarps + warp, mine, lane);
                cluster_arrive();
                cluster_wait();
            } else {
                if (lane == 0) turn[warp] = mine;
                if constexpr (kRows == 1) __syncthreads();
                else barrier_sync(number_, kThreads);
            }
            mine = turn[lane % kStates];
#pragma unroll
            for (int other = 32; other < kStates; other += 32) Operation::template join<kPass>(mine, turn[other + lane]);
            across_lanes<kPass, (kStates < 32 ? kStates : 32)>(mine);
        }
        return mine;
    }

    // Before a CTA ends, where others may still be about to write to it: none is, after a join.
    __device__ __forceinline__ void leave() {
        if constexpr (kCtas > 1) {
            if (fresh_) cluster_wait();
        }
    }

private:
    template <int kPass, int kLanes>
    static __device__ __forceinline__ void across_lanes(State& mine) {
#pragma unroll
        for (int lanes = kLanes / 2; lanes; lanes /= 2) {
            State other;
#pragma unroll
            for (int i = 0; i < kFloats; ++i) other.value[i] = __shfl_xor_sync(~0u, mine.value[i], lanes);
            Operation::template join<kPass>(mine, other);
        }
    }

    static __device__ __forceinline__ void tell(State* place, const State& state, u32 rank) {
        const u32 there = map_to_rank(shared_address(place), rank);
#pragma unroll
        for (int i = 0; i < kFloats; ++i)
            asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there + 4 * i), "f"(state.value[i]) : "memory");
    }

    const int number_;
    int rank_;
    Storage* const storage_;
    u32 turn_ = 0;
    bool fresh_ = true;
};

}  // namespace evo


namespace evo {

// Visits the chunks of kWidth elements that belong to the caller, kAhead loads at once, the last one first where
// kBackward: the end of the row is what the caches still hold.
template <int kWidth, int kAhead, bool kBackward, class Operation, class Visit>
__device__ __forceinline__ void visit_chunks(const Operation& operation, long long row, int columns, int first,
                                             int step, const Visit& visit) {
    const int count = first < columns ? (columns - first - 1) / step + 1 : 0;
    const int begin = kBackward ? first + (count - 1) * step : first, stride = kBackward ? -step : step;
    int done = 0;
    for (; done + kAhead <= count; done += kAhead) {
        Columns<Operation, kWidth> held[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) load_chunks<kWidth>(held[i], operation, row, begin + (done + i) * stride);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) visit(held[i], begin + (done + i) * stride);
    }
#pragma unroll 1
    for (; done < count; ++done) {
        Columns<Operation, kWidth> held;
        load_chunks<kWidth>(held, operation, row, begin + done * stride);
        visit(held, begin + done * stride);
    }
}

// Whether a pass has nothing to add to what is found of a row. All threads of a row found the same; that a warp's did
// is said to the compiler.
template <int kPass, class Operation>
__device__ __forceinline__ bool needless(const typename Operation::State& found) {
    if constexpr (kPass > 0 && Operation::kMaySuffice) return __all_sync(~0u, Operation::suffices(found));
    else return false;
}

template <int kPass, int kWidth, int kAhead, bool kBackward, class Operation, class Threads>
__device__ __forceinline__ void read_passes(const Operation& operation, Threads& team, long long row, int columns,
                                            typename Operation::State& found) {
    if constexpr (kPass < Operation::kPasses) {
        if (needless<kPass, Operation>(found)) return;
        typename Operation::State mine = Operation::template none<kPass>(found);
        visit_chunks<kWidth, kAhead, kBackward && kPass % 2 == 1>(
            operation, row, columns, team.thread() * kWidth, Threads::kAll * kWidth,
            [&](const Columns<Operation, kWidth>& held, int) {
                float x[kWidth];
                operation.values(held, x);
                operation.template take<kPass>(mine, x);
            });
        found = operation.template found<kPass>(team.template join<kPass>(mine));
        read_passes<kPass + 1, kWidth, kAhead, kBackward>(operation, team, row, columns, found);
    }
}

// All rows, each read once a pass and once for what is written.
template <int kWidth, int kAhead, bool kBackward, bool kPersistent, class Operation, class Threads>
__device__ __forceinline__ void rows_read_twice(const Operation& operation, Threads& team, int rows, int columns) {
    for (long long row = team.first_row(); row < rows; row = team.next_row(row)) {
        typename Operation::State found = operation.start(row);
        read_passes<0, kWidth, kAhead, kBackward>(operation, team, row, columns, found);
        if constexpr (Operation::kWritesRow)
            visit_chunks<kWidth, kAhead, kBackward && Operation::kPasses % 2 == 1>(
                operation, row, columns, team.thread() * kWidth, Threads::kAll * kWidth,
                [&](const Columns<Operation, kWidth>& held, int column) {
                    float x[kWidth];
                    operation.values(held, x);
                    typename Operation::template Weights<kWidth> weights;
                    operation.load(weights, column);
                    operation.finish(row, column, x, weights, found);
                });
        if (team.thread() == 0) operation.finish_row(row, found);
        if constexpr (!kPersistent) break;
    }
}

}  // namespace evo


namespace evo {

// How rows come into shared memory: one thread starts bulk copies; or each thread copies the chunks that it reads
// itself, so that no thread waits for another.
enum class Copies { bulk_, threads_ };

// kStages rows of kRoom elements of each matrix that is read, and a barrier for each piece of each.
template <class Operation, int kRoom, int kStages, int kPieces>
struct RowParts {
    alignas(16) typename Operation::Element elements[kStages][Operation::kStreams][kRoom];
    alignas(8) unsigned long long barriers[kStages][kPieces];
};

template <class Operation, class Threads, int kThreads, int kCtas, int kWidth, int kRoom, int kStages, int kPieces,
          Copies kCopies, int kAhead>
class SharedRows {
    using Element = typename Operation::Element;
    using Row = Columns<Operation, kWidth>;
    static constexpr int kStep = kThreads * kWidth, kPiece = kRoom / kPieces;
    static constexpr int kSize = static_cast<int>(sizeof(Element)), kGranule = 16 / kSize;
    static_assert(kPiece % kStep == 0 && kStep % kGranule == 0, "each piece is the same for all threads");

public:
    using Storage = RowParts<Operation, kRoom, kStages, kPieces>;

    __device__ __forceinline__ SharedRows(Storage& storage, const Operation& operation, const Threads& team, int columns)
        : storage_(storage), operation_(operation) {
        const int part = part_of(columns);
        first_ = min(columns, team.rank() * part);
        count_ = min(columns - first_, part);
        if constexpr (kCopies == Copies::bulk_) {
            if (threadIdx.x == 0) {
                for (int i = 0; i < kStages * kPieces; ++i)
                    mbarrier_init(shared_address(&storage.barriers[i / kPieces][i % kPieces]), 1);
                fence_mbarrier_init();
            }
            __syncthreads();
        }
    }

    // Whether rows fit, and lie so that 16 bytes are one chunk.
    static __device__ __forceinline__ bool serves(int columns, int pitch) {
        return columns % kGranule == 0 && pitch % kGranule == 0 && part_of(columns) <= kRoom;
    }

    template <bool kPersistent>
    __device__ __forceinline__ void run(Threads& team, int rows) {
        const long long stride = team.next_row(0);
        long long row = team.first_row();
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage) start(row + stage * stride, rows, stage);
        int turn = 0;
        for (; row < rows; row += stride, ++turn) {
            const int stage = turn % kStages;
            typename Operation::State found = operation_.start(row);
            passes<0>(team, stage, turn, found, row, rows, stride);
            if constexpr (Operation::kWritesRow)
                visit(stage, [&](const Row& held, int column) {
                    float x[kWidth];
                    operation_.values(held, x);
                    typename Operation::template Weights<kWidth> weights;
                    operation_.load(weights, first_ + column);
                    operation_.finish(row, first_ + column, x, weights, found);
                });
            if (team.thread() == 0) operation_.finish_row(row, found);
            if constexpr (!kPersistent) break;
            if constexpr (kStages == 1) {
                if constexpr (kCopies == Copies::bulk_) __syncthreads();  // all have read the row
                start(row + stride, rows, 0);
            }
        }
    }

private:
    static __device__ __forceinline__ int part_of(int columns) {
        constexpr int kUnit = kGranule * kCtas;
        return (columns + kUnit - 1) / kUnit * kGranule;
    }

    // Starts copying this CTA's part of `row`. Past the last row nothing is copied.
    __device__ __forceinline__ void start(long long row, int rows, int stage) {
        if constexpr (kCopies == Copies::bulk_) {
            if (threadIdx.x != 0 || row >= rows) return;
#pragma unroll
            for (int piece = 0; piece < kPieces; ++piece) {
                const int count = max(0, min(kPiece, count_ - piece * kPiece));
                const u32 barrier = shared_address(&storage_.barriers[stage][piece]);
                mbarrier_expect(barrier, count * kSize * Operation::kStreams);
                if (count > 0)
                    for (int i = 0; i < Operation::kStreams; ++i)
                        bulk_load(shared_address(&storage_.elements[stage][i][piece * kPiece]),
                                  operation_.source(i, row) + first_ + piece * kPiece, count * kSize, barrier);
            }
        } else {
            if (row < rows)
                for (int i = 0; i < Operation::kStreams; ++i) {
                    const Element* const from = operation_.source(i, row) + first_;
                    Element* const to = storage_.elements[stage][i];
#pragma unroll kAhead
                    for (int column = threadIdx.x * kWidth; column < count_; column += kStep)
                        cp_async_16(shared_address(to + column), from + column, true);
                }
            cp_async_commit();
        }
    }

    // Until what this thread reads first of the row of a turn is there.
    __device__ __forceinline__ void wait(int turn) {
        if constexpr (kCopies == Copies::threads_) {
            if (kStages == 1) cp_async_wait<0>();
            else if (turn == 0) cp_async_wait<kStages - 1>();
            else cp_async_wait<(kStages > 1 ? kStages - 2 : 0)>();
        }
    }

    template <class Visit>
    __device__ __forceinline__ void visit_piece(int stage, int begin, int end, const Visit& visit) const {
#pragma unroll kAhead
        for (int column = begin + threadIdx.x * kWidth; column < end; column += kStep) {
            Row held;
#pragma unroll
            for (int i = 0; i < Operation::kStreams; ++i)
                held.of[i].template load<Caching::usual_>(&storage_.elements[stage][i][column]);
            visit(held, column);
        }
    }
    template <class Visit>
    __device__ __forceinline__ void visit(int stage, const Visit& visit) const {
        visit_piece(stage, 0, count_, visit);
    }

    template <int kPass>
    __device__ __forceinline__ void passes(Threads& team, int stage, int turn, typename Operation::State& found,
                                           long long row, int rows, long long stride) {
        if constexpr (kPass < Operation::kPasses) {
            if (needless<kPass, Operation>(found)) return;
            typename Operation::State mine = Operation::template none<kPass>(found);
            const auto take = [&](const Row& held, int) {
                float x[kWidth];
                operation_.values(held, x);
                operation_.template take<kPass>(mine, x);
            };
            if constexpr (kPass == 0) wait(turn);
            if constexpr (kPass == 0 && kCopies == Copies::bulk_) {
#pragma unroll 1
                for (int piece = 0; piece < kPieces; ++piece) {
                    mbarrier_wait(shared_address(&storage_.barriers[stage][piece]), turn / kStages & 1);
                    visit_piece(stage, piece * kPiece, min(count_, (piece + 1) * kPiece), take);
                }
            } else {
                visit(stage, take);
            }
            found = operation_.template found<kPass>(team.template join<kPass>(mine));
            // all threads have left the row before this one: its place is free
            if constexpr (kPass == 0 && kStages > 1) {
                if (turn > 0) start(row + (kStages - 1) * stride, rows, (turn - 1) % kStages);
            }
            passes<kPass + 1>(team, stage, turn, found, row, rows, stride);
        }
    }

    Storage& storage_;
    const Operation& operation_;
    int first_, count_;
};

}  // namespace evo

// rmsnorm.cuh
// RMSNorm as an operation on rows: y = h / sqrt(mean of h² + epsilon) · weight with h = x, or h = x + residual,
// which is then written back. h is not rounded before it is normalised.


namespace evo {

template <class Stored, bool kResidual, Caching kReads, Caching kStores>
struct RmsNorm {
    using Element = Stored;
    static constexpr Caching kLoads = kReads;
    static constexpr int kStreams = kResidual ? 2 : 1;
    static constexpr int kPasses = 1;
    static constexpr bool kWritesRow = true, kMaySuffice = false;
    struct State {
        float value[1];  // the sum of squares; once it is found, the factor
    };
    template <int kWidth> using Weights = Chunk<Element, kWidth>;

    const Element* x;
    Element* residual;
    const Element* weight;
    Element* y;
    int columns;
    long long pitch;  // elements from one row of x to the next
    float epsilon;

    // The same, where row 0 and column 0 are this element.
    __device__ __forceinline__ RmsNorm at(long long row, int column) const {
        const long long dense = row * columns + column;
        return {kept(x + row * pitch + column), kResidual ? kept(residual + dense) : nullptr, kept(weight + column),
                kept(y + dense), columns, pitch, epsilon};
    }
    // Where a row of a matrix that is read begins.
    __device__ __forceinline__ const Element* source(int stream, long long row) const {
        return stream ? residual + row * columns : x + row * pitch;
    }
    template <bool kThen = false, int kWidth>
    __device__ __forceinline__ void load(Weights<kWidth>& to, int column, int more = 0) const {
        to.template load_constant<kThen>(weight + column + more);
    }
    template <int kWidth>
    static __device__ __forceinline__ void keep_packed(Weights<kWidth>& weights) { weights.keep_packed(); }
    template <int kWidth>
    __device__ __forceinline__ void values(const Chunks<Element, kWidth, kStreams>& held, float (&h)[kWidth]) const {
        held.of[0].floats(h);
        if constexpr (kResidual) {
            float more[kWidth];
            held.of[1].floats(more);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) h[i] += more[i];
        }
    }

    __device__ __forceinline__ State start(long long) const { return {}; }
    template <int kPass>
    static __device__ __forceinline__ State none(const State&) { return {0.f}; }
    template <int kPass, int kWidth>
    __device__ __forceinline__ void take(State& state, const float (&h)[kWidth]) const {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) state.value[0] = fmaf(h[i], h[i], state.value[0]);
    }
    template <int kPass>
    static __device__ __forceinline__ void join(State& state, const State& other) { state.value[0] += other.value[0]; }
    template <int kPass>
    __device__ __forceinline__ State found(const State& state) const {
        return {rsqrtf(state.value[0] / static_cast<float>(columns) + epsilon)};
    }

    template <int kWidth>
    __device__ __forceinline__ void finish(long long row, int column, const float (&h)[kWidth],
                                           const Weights<kWidth>& weights, const State& state) const {
        if constexpr (kResidual)
            Chunk<Element, kWidth>::rounded(h).template store<kStores>(residual + row * columns + column);
        float w[kWidth], normalised[kWidth];
        weights.floats(w);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) normalised[i] = h[i] * state.value[0] * w[i];
        Chunk<Element, kWidth>::rounded(normalised).template store<kStores>(y + row * columns + column);
    }
    __device__ __forceinline__ void finish_row(long long, const State&) const {}
};

}  // namespace evo


namespace evo {

using Element = Bf16;
constexpr bool kResidual = false;
constexpr int kThreads = 64;
constexpr int kRows = 1;
constexpr int kCtas = 1;
constexpr int kVector = 8;
constexpr int kRoom = 4096;
constexpr int kStages = 1;
constexpr Copies kCopies = Copies::threads_;
constexpr int kPieces = 1;
constexpr int kUnroll = 2;
constexpr Caching kLoads = Caching::usual_;  // of rows that are no multiples of 16 bytes
constexpr Caching kStores = Caching::streaming_;
constexpr int kMinCtas = 1;
constexpr bool kPersistent = 0;
constexpr int kSmemBytes = 8224;

using Operation = RmsNorm<Element, kResidual, kLoads, kStores>;
using Threads = Team<Operation, kThreads, kRows, kCtas>;
using Rows = SharedRows<Operation, Threads, kThreads, kCtas, kVector, kRoom, kStages, kPieces, kCopies, kUnroll>;
struct SharedStorage {
    Rows::Storage parts;
    Threads::Storage exchange[kRows];
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "the model of shared memory is wrong");

}  // namespace evo

extern "C" __global__ void __launch_bounds__(evo::kThreads* evo::kRows, evo::kMinCtas)
row_cluster(const evo::Element* x,
              const evo::Element* weight, evo::Element* y, int rows, int columns, int pitch, float epsilon) {
    using namespace evo;
    extern __shared__ __align__(16) unsigned char shared[];
    SharedStorage& storage = *reinterpret_cast<SharedStorage*>(shared);
    Element* const residual = nullptr;
    const Operation operation{x, residual, weight, y, columns, pitch, epsilon};
    Threads team(storage.exchange);
    if (Rows::serves(columns, pitch))
        Rows(storage.parts, operation, team, columns).run<kPersistent>(team, rows);
    else
        rows_read_twice<1, 4, false, kPersistent>(operation, team, rows, columns);
    team.leave();
}

// evo 0.1.0 template rmsnorm/row_registers
// problem rmsnorm rows=2048 columns=4096 residual=1 gap=0 bf16
// point {"ahead":0,"cluster":1,"grid":"rows","loads":"evict_last","min_ctas":1,"rows":1,"steps":4,"stores":"streaming","threads":128,"vector":8,"weights":"early"}

// RMSNorm of rows that stay in registers: each is read once.
// registers.cuh
// A row in the registers of its threads: read once, whatever the number of passes.
// twice.cuh
// A row that is read again for each pass: of any length, with few registers.
// chunk.cuh
// Up to 16 bytes of a row, moved by one instruction, and their elements as floats.
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

// When weights are loaded: once for all rows of a thread, with each row, or late: those of a chunk while the chunk
// before it is finished, so that chunks do not wait for them one after the other. In a loop over rows, when the chunk is:
// the compiler would move such loads in front of the loop, and hold all weights.
enum class When { once_, early_, late_ };

template <int kPass, int kWidth, int kSteps, class Operation, class Threads>
__device__ __forceinline__ void held_passes(const Operation& operation, Threads& team, int columns,
                                            const Columns<Operation, kWidth> (&held)[kSteps],
                                            typename Operation::State& found) {
    if constexpr (kPass < Operation::kPasses) {
        if (needless<kPass, Operation>(found)) return;
        typename Operation::State mine = Operation::template none<kPass>(found);
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            if ((i * Threads::kAll + team.thread()) * kWidth < columns) {
                float x[kWidth];
                operation.values(held[i], x);
                operation.template take<kPass>(mine, x);
            }
        found = operation.template found<kPass>(team.template join<kPass>(mine));
        held_passes<kPass + 1, kWidth, kSteps>(operation, team, columns, held, found);
    }
}

// Rows of at most kSteps chunks of kWidth elements a thread. kAhead: the next row is loaded before this one is
// summed up. Columns must be a multiple of kWidth, and so must be what lies between two rows.
template <int kWidth, int kSteps, When kWhen, bool kAhead, bool kPersistent, class Operation, class Threads>
__device__ __forceinline__ void rows_in_registers(const Operation& operation, Threads& team, int rows, int columns) {
    using Held = Columns<Operation, kWidth>;
    using Weights = typename Operation::template Weights<kWidth>;
    const int first = team.thread() * kWidth;
    const auto more = [](int i) { return i * Threads::kAll * kWidth; };
    const auto there = [&](int i) { return first + more(i) < columns; };
    const auto load_row = [&](Held (&to)[kSteps], const Operation& own) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            if (there(i)) load_chunks<kWidth>(to[i], own, 0, more(i));
    };
    const auto load_weight = [&](Weights (&to)[kSteps], const Operation& own, int i) {
        if (i < kSteps && there(i)) own.load(to[i], more(i));
    };
    const auto load_weights = [&](Weights (&to)[kSteps], const Operation& own) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) load_weight(to, own, i);
    };
    constexpr bool kLate = kWhen == When::late_, kChunkAhead = kLate && !kPersistent;
    Held held[kSteps], next[kSteps];
    Weights weights[kSteps];
    long long row = team.first_row();
    Operation own = operation.at(row, first);
    if (row < rows) load_row(held, own);
    if constexpr (kWhen == When::once_) load_weights(weights, own);
    while (row < rows) {
        const long long following = team.next_row(row);
        if constexpr (kAhead) {
            if (following < rows) load_row(next, operation.at(following, first));
        }
        if constexpr (kWhen == When::early_) load_weights(weights, own);
        if constexpr (kChunkAhead) load_weight(weights, own, 0);
        if constexpr (kWhen == When::once_) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) operation.keep_packed(weights[i]);
        }
        typename Operation::State found = operation.start(row);
        held_passes<0, kWidth, kSteps>(operation, team, columns, held, found);
        if constexpr (Operation::kWritesRow) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) {
                if constexpr (kChunkAhead) load_weight(weights, own, i + 1);
                if (there(i)) {
                    if constexpr (kLate && !kChunkAhead) own.template load<true>(weights[i], more(i));
                    float x[kWidth];
                    operation.values(held[i], x);
                    own.finish(0, more(i), x, weights[i], found);
                }
            }
        }
        if (team.thread() == 0) operation.finish_row(row, found);
        if constexpr (!kPersistent) break;
        row = following;
        own = operation.at(row, first);
        if constexpr (kAhead) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) held[i] = next[i];
        } else if (row < rows) {
            load_row(held, own);
        }
    }
}

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
constexpr bool kResidual = true;
constexpr int kThreads = 128;
constexpr int kRows = 1;
constexpr int kCtas = 1;
constexpr int kVector = 8;
constexpr int kSteps = 4;
constexpr bool kAhead = 0;
constexpr When kWhen = When::early_;
constexpr Caching kLoads = Caching::evict_last_;
constexpr Caching kStores = Caching::streaming_;
constexpr int kMinCtas = 1;
constexpr bool kPersistent = 0;
constexpr int kSmemBytes = 32;

using Operation = RmsNorm<Element, kResidual, kLoads, kStores>;
using Threads = Team<Operation, kThreads, kRows, kCtas>;
struct SharedStorage {
    Threads::Storage exchange[kRows];
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "the model of shared memory is wrong");

}  // namespace evo

extern "C" __global__ void __launch_bounds__(evo::kThreads* evo::kRows, evo::kMinCtas)
row_registers(const evo::Element* x,
              evo::Element* residual,
              const evo::Element* weight, evo::Element* y, int rows, int columns, int pitch, float epsilon) {
    using namespace evo;
    extern __shared__ __align__(16) unsigned char shared[];
    const Operation operation{x, residual, weight, y, columns, pitch, epsilon};
    Threads team(reinterpret_cast<SharedStorage*>(shared)->exchange);
    if (columns % kVector == 0 && pitch % kVector == 0 && columns <= kSteps * Threads::kAll * kVector)
        rows_in_registers<kVector, kSteps, kWhen, kAhead, kPersistent>(operation, team, rows, columns);
    else
        rows_read_twice<1, 4, false, kPersistent>(operation, team, rows, columns);
    team.leave();
}

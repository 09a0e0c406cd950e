// Attention forward without Tensor Cores: fp32 dot products, online softmax (any GPU that has bf16: sm_80).
// A row of queries belongs to a team of kLanes neighbouring threads; each holds its share of the row's columns.
// vector.cuh
// Reading several 16-bit elements with one instruction, as floats.
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


namespace evo {

// ---- knobs ----
using Element = Bf16;
constexpr int kD = 128;
constexpr bool kCausal = true;
constexpr int kBM = 32;                      // queries a query tile
constexpr int kBN = 32;                      // keys a key tile
constexpr int kThreads = 128;
constexpr int kQTiles = 2;             // query tiles a CTA
constexpr int kStep = 4;                  // keys that are rescaled for together
constexpr int kVector = 2;              // elements a load
enum class LoopOrder { q_outer, kv_outer };
constexpr LoopOrder kLoopOrder = LoopOrder::kv_outer;
enum class State { registers, shared };
constexpr State kState = State::shared;       // where a thread keeps its share of Q and the output
constexpr int kSmemBytes = 81920;
// ---- end of knobs ----

constexpr int kLanes = kThreads / kBM;
constexpr int kShare = kD / kLanes;                // columns of a thread
static_assert(kLanes * kBM == kThreads && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0, "teams divide a warp");
// Registers want constant indices; code that goes to shared memory anyway stays small.
constexpr int kUnroll = kState == State::registers ? kShare / kVector : 32 / kVector;
static_assert(kShare % kVector == 0 && kBN % kStep == 0, "whole loads, whole steps");
constexpr int kHeldTiles = kLoopOrder == LoopOrder::kv_outer ? kQTiles : 1;  // query tiles in work at once

struct alignas(16) SharedStorage {
    Element k[kBN][kD];
    Element v[kBN][kD];
    float q[kHeldTiles][kShare][kThreads];         // a thread's own values lie in its own bank
    float output[kHeldTiles][kShare][kThreads];
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

// Where a thread stands: its row in a query tile and its columns. Loads of a team are next to each other.
struct Seat {
    int row, side;
    __device__ __forceinline__ Seat() : row(threadIdx.x / kLanes), side(threadIdx.x % kLanes) {}
    __device__ __forceinline__ int column(int i) const { return (i / kVector * kLanes + side) * kVector + i % kVector; }
};

// A thread's share of one row: registers ...
template <State kWhere>
struct Share {
    float q_[kShare], output_[kShare];
    template <class Shared>
    __device__ __forceinline__ void place(Shared&, int) {}
    __device__ __forceinline__ float& q(int i) { return q_[i]; }
    __device__ __forceinline__ float& output(int i) { return output_[i]; }
};

// ... or shared memory.
template <>
struct Share<State::shared> {
    float *q_, *output_;
    template <class Shared>
    __device__ __forceinline__ void place(Shared& shared, int tile) {
        q_ = &shared.q[tile][0][threadIdx.x];
        output_ = &shared.output[tile][0][threadIdx.x];
    }
    __device__ __forceinline__ float& q(int i) { return q_[i * kThreads]; }
    __device__ __forceinline__ float& output(int i) { return output_[i * kThreads]; }
};

struct Row {
    Share<kState> share;
    float maximum, sum;
    int query;  // may lie beyond the last one: such a row computes, but is not stored

    // Takes up a query; Q is scaled once, so that scores come out ready for 2^x.
    __device__ __forceinline__ void start(SharedStorage& shared, int tile, const Element* q, int at, int length,
                                          float scale_log2, Seat seat) {
        share.place(shared, tile);
        query = at;
        maximum = -1e30f;  // finite: hidden scores are -inf, and -inf - -inf is no number
        sum = 0.f;
#pragma unroll kUnroll
        for (int i = 0; i < kShare; i += kVector) {
            float x[kVector] = {};
            if (query < length) load_floats<kVector>(x, q + static_cast<long long>(query) * kD + seat.column(i));
#pragma unroll
            for (int e = 0; e < kVector; ++e) share.q(i + e) = x[e] * scale_log2, share.output(i + e) = 0.f;
        }
    }

    // Scores of kStep keys, equal in the whole team; -inf from the `visible`-th key on.
    __device__ __forceinline__ void score(float (&scores)[kStep], const Element (*k)[kD], int visible, Seat seat) {
#pragma unroll
        for (int j = 0; j < kStep; ++j) {
            float dot = 0.f;
#pragma unroll kUnroll
            for (int i = 0; i < kShare; i += kVector) {
                float x[kVector];
                load_floats<kVector>(x, &k[j][seat.column(i)]);
#pragma unroll
                for (int e = 0; e < kVector; ++e) dot = fmaf(share.q(i + e), x[e], dot);
            }
#pragma unroll
            for (int distance = 1; distance < kLanes; distance *= 2) dot += __shfl_xor_sync(0xffffffffu, dot, distance);
            scores[j] = j < visible ? dot : __int_as_float(0xff800000);
        }
    }

    // Takes kStep keys and their values.
    __device__ __forceinline__ void visit(const Element (*k)[kD], const Element (*v)[kD], int visible, Seat seat) {
        float p[kStep];
        score(p, k, visible, seat);
        float grown = maximum;
#pragma unroll
        for (int j = 0; j < kStep; ++j) grown = fmaxf(grown, p[j]);
        const float factor = ex2(maximum - grown);
        maximum = grown;
        sum *= factor;
#pragma unroll
        for (int j = 0; j < kStep; ++j) p[j] = ex2(p[j] - grown), sum += p[j];
#pragma unroll kUnroll
        for (int i = 0; i < kShare; i += kVector) {
            float out[kVector];
#pragma unroll
            for (int e = 0; e < kVector; ++e) out[e] = share.output(i + e) * factor;
#pragma unroll
            for (int j = 0; j < kStep; ++j) {
                float x[kVector];
                load_floats<kVector>(x, &v[j][seat.column(i)]);
#pragma unroll
                for (int e = 0; e < kVector; ++e) out[e] = fmaf(p[j], x[e], out[e]);
            }
#pragma unroll
            for (int e = 0; e < kVector; ++e) share.output(i + e) = out[e];
        }
    }

    __device__ __forceinline__ void store(Element* o, int length, Seat seat) {
        if (query >= length) return;
        const float inverse = rcp(sum);
#pragma unroll kUnroll
        for (int i = 0; i < kShare; i += kVector) {
            float x[kVector];
#pragma unroll
            for (int e = 0; e < kVector; ++e) x[e] = share.output(i + e) * inverse;
            store_floats<kVector>(o + static_cast<long long>(query) * kD + seat.column(i), x);
        }
    }
};

// Copies kBN rows, zeros from `rows_left` on (hidden keys are multiplied by zero, and NaN would survive that).
__device__ __forceinline__ void copy_tile(Element (*to)[kD], const Element* from, int rows_left) {
    using Load = typename Word<kVector>::type;
    for (u32 i = threadIdx.x; i < kBN * kD / kVector; i += kThreads) {
        Load word = {};
        if (static_cast<int>(i / (kD / kVector)) < rows_left) word = reinterpret_cast<const Load*>(from)[i];
        reinterpret_cast<Load*>(to)[i] = word;
    }
}

// Visits the keys of tile `tile`, which is in shared memory.
__device__ __forceinline__ void visit_tile(Row& row, const SharedStorage& shared, int tile, int length, Seat seat) {
    const int here = min(kBN, length - tile * kBN);
    const int visible = (kCausal ? min(length, row.query + 1) : length) - tile * kBN;
#pragma unroll 1
    for (int key = 0; key < here; key += kStep) row.visit(shared.k + key, shared.v + key, visible - key, seat);
}

__device__ __forceinline__ void fetch_tile(SharedStorage& shared, const Element* k, const Element* v, int tile, int length) {
    __syncthreads();  // nobody reads the last tile any more
    const long long first = static_cast<long long>(tile) * kBN * kD;
    copy_tile(shared.k, k + first, length - tile * kBN);
    copy_tile(shared.v, v + first, length - tile * kBN);
    __syncthreads();
}

// Key tiles that the queries of query tile `q_tile` may see.
__device__ __forceinline__ int tiles_seen(int q_tile, int length) {
    const u32 seen = kCausal ? min(length, (q_tile + 1) * kBM) : length;
    return (seen + kBN - 1) / kBN;
}

__device__ __forceinline__ void attention(SharedStorage& shared, const Element* q, const Element* k, const Element* v,
                                          Element* o, int length, float scale_log2) {
    const Seat seat;
    const int first = blockIdx.x * kQTiles, last = min(first + kQTiles, (length + kBM - 1) / kBM) - 1;
    if constexpr (kLoopOrder == LoopOrder::q_outer) {
        for (int q_tile = first; q_tile <= last; ++q_tile) {
            Row row;
            row.start(shared, 0, q, q_tile * kBM + seat.row, length, scale_log2, seat);
            for (int tile = 0; tile < tiles_seen(q_tile, length); ++tile) {
                fetch_tile(shared, k, v, tile, length);
                visit_tile(row, shared, tile, length, seat);
            }
            row.store(o, length, seat);
        }
    } else {
        Row rows[kQTiles];
#pragma unroll
        for (int t = 0; t < kQTiles; ++t)
            rows[t].start(shared, t, q, (first + t) * kBM + seat.row, length, scale_log2, seat);
        for (int tile = 0; tile < tiles_seen(last, length); ++tile) {
            fetch_tile(shared, k, v, tile, length);
#pragma unroll
            for (int t = 0; t < kQTiles; ++t)
                if (tile < tiles_seen(first + t, length)) visit_tile(rows[t], shared, tile, length, seat);
        }
#pragma unroll
        for (int t = 0; t < kQTiles; ++t) rows[t].store(o, length, seat);
    }
}

}  // namespace evo

// q, k, v, o: (heads, length, kD), dense. Grid: groups of kQTiles query tiles x heads.
extern "C" __global__ void __launch_bounds__(evo::kThreads)
scalar(const evo::Element* q, const evo::Element* k, const evo::Element* v, evo::Element* o, int length,
       float scale_log2) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    const long long head = static_cast<long long>(blockIdx.y) * length * evo::kD;
    evo::attention(*reinterpret_cast<evo::SharedStorage*>(shared_memory), q + head, k + head, v + head, o + head, length,
                   scale_log2);
}

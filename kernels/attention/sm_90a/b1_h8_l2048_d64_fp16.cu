// evo 0.1.0 template attention/flash_wgmma
// problem attention B=1 H=8 L=2048 D=64 causal=0 fp16
// point {"bn":64,"cluster_kv":1,"cluster_m":1,"epilogue":"wide","grid_order":"m_fastest","key_groups":2,"key_order":"halving","longest_first":false,"message":"full","min_ctas":1,"overlap":"turns","persistent":false,"polynomials":0,"producer":"warpgroup","query_stages":1,"rescale":"late","row_groups":2,"stages":8}

// Attention forward on Hopper (sm_90a): a producer copies tiles of K and V ahead by TMA, warpgroups of
// consumers multiply them by wgmma. A CTA takes kBM queries of one head; scores, probabilities and output
// stay in registers. After FlashAttention-3 (Shah et al., 2024).
// join_cluster.cuh
// Joining what several warpgroups, of one CTA or of a cluster, found over different keys of the same 64 query
// rows. Every part (warpgroup) ends up with the final values of its share of each thread's accumulators: one
// of the two rows, and a run of column blocks.
// cluster.cuh
// CTAs that run at the same time and reach into each other's shared memory (sm_90): what needs an mbarrier, one
// function per PTX instruction.
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

// cp.async.mbarrier.arrive.noinc: one arrival, once all copies that this thread has started have landed.
__device__ __forceinline__ void mbarrier_arrive_landed(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
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

// %cluster_ctarank
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// st.async: stores into another CTA's shared memory; the bytes count at `barrier` of that CTA.
__device__ __forceinline__ void store_async(u32 to, float2 x, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], { %1, %2 }, [%3];"
                 :: "r"(to), "f"(x.x), "f"(x.y), "r"(barrier) : "memory");
}
__device__ __forceinline__ void store_async(u32 to, float4 x, u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], { %1, %2, %3, %4 }, [%5];"
                 :: "r"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier) : "memory");
}

}  // namespace evo

// warpgroup.cuh
// Attention on the 64 query rows of one warpgroup: products by wgmma, softmax and results in registers. Per
// thread, column block j of 8 columns holds elements 0, 1 of row lane/4 and 2, 3 of row lane/4 + 8 of its warp.
// exp2_poly.cuh
// 2^x without the special-function unit: the multiply-add pipe has room where a kernel waits for exponentials
// (16 a clock and SM on sm_80 and sm_90, against 128 multiply-adds).


namespace evo {

// 2^x for x below 126, within 8e-5 relative: below half a step of both 16-bit types. Adding 1.5 * 2^23 rounds x to
// an integer n in the low bits; a cubic (minimax of the relative error over [-1/2, 1/2]) gives 2^(x-n), and n
// is added to its exponent. Results below 2^-126 become 2^-126, -inf included.
__device__ __forceinline__ float exp2_poly(float x) {
    constexpr float kRound = 12582912.f;
    x = fmaxf(x, -126.f);
    const float shifted = x + kRound, f = x - (shifted - kRound);
    float y = fmaf(f, 0.0551716691f, 0.242611122f);
    y = fmaf(y, f, 0.693260985f);
    y = fmaf(y, f, 0.999928074f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

}  // namespace evo

// softmax.cuh
// Softmax over rows of m16n8k16 accumulators, one tile of keys after the other (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018), in base 2 with the scale folded into one fma.
// fragment.cuh
// What one warp holds of m16n8k16's operands, and the two matrix products of attention on them.
// Rows of a warp come in kBlocks blocks of 16. In an accumulator, lane l holds row l/4 (elements 0, 1) and
// row l/4 + 8 (elements 2, 3), columns 2 (l%4) and 2 (l%4) + 1.
// tile.cuh
// A tile in shared memory: rows of kColumns 16-bit elements, moved in chunks of 16 bytes.
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


namespace evo {

template <int kBlocks, int kColumns>
using Accumulator = float[kBlocks][kColumns / 8][4];

template <int kBlocks, int kColumns>
using RowOperand = u32[kBlocks][kColumns / 16][4];

template <int kBlocks, int kColumns>
__device__ __forceinline__ void clear(float (&sum)[kBlocks][kColumns][4]) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.f;
}

// 16 rows from `row`, 16 columns from chunk 2 `step`, of a tile.
template <class Layout>
__device__ __forceinline__ void load_row_operand(u32 (&a)[4], u32 tile, int row, int step, int lane) {
    ldmatrix_x4(a, tile + Layout::offset(row + (lane & 15), 2 * step + (lane >> 4)));
}

// All rows and columns of a warp, straight from a dense global matrix that `rows` points into. Rows from
// `rows_left` on read as zero.
template <int kColumns, class Element, int kBlocks, int kSteps>
__device__ __forceinline__ void load_rows(u32 (&a)[kBlocks][kSteps][4], const Element* rows, int rows_left, int lane) {
    const Element* from = as_base(rows + (lane >> 2) * kColumns + 2 * (lane & 3));
    const int left = rows_left - (lane >> 2);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int down = 16 * i + 8 * (part & 1), right = 16 * step + 8 * (part >> 1);
                const u32* pair = reinterpret_cast<const u32*>(from + down * kColumns + right);
                a[i][step][part] = left > down ? __ldg(pair) : 0u;
            }
}

// scores = Q K^T for one warp: kKeys rows of the K tile. Q comes from registers (kHeld) or, step by step,
// from its tile, rows from `row`.
template <class Element, class Layout, int kKeys, bool kHeld, int kBlocks, int kSteps>
__device__ __forceinline__ void multiply_keys(float (&scores)[kBlocks][kKeys / 8][4], u32 (&q)[kBlocks][kSteps][4],
                                              u32 q_tile, int row, u32 k_tile, int lane) {
    clear(scores);
    const int key = (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        if constexpr (!kHeld) {
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) load_row_operand<Layout>(q[i][step], q_tile, row + 16 * i, step, lane);
        }
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
            u32 k[4];
            ldmatrix_x4(k, k_tile + Layout::offset(16 * n + key, 2 * step + half));
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
                Element::mma(scores[i][2 * n], q[i][step], k[0], k[1]);
                Element::mma(scores[i][2 * n + 1], q[i][step], k[2], k[3]);
            }
        }
    }
}

// out += P V for one warp: kKeys rows of the V tile.
template <class Element, class Layout, int kKeys, int kBlocks, int kColumns>
__device__ __forceinline__ void multiply_values(float (&out)[kBlocks][kColumns][4],
                                                const u32 (&p)[kBlocks][kKeys / 16][4], u32 v_tile, int lane) {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
#pragma unroll
        for (int d = 0; d < kColumns / 2; ++d) {
            u32 v[4];
            ldmatrix_x4_trans(v, v_tile + Layout::offset(16 * step + (lane & 15), 2 * d + (lane >> 4)));
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
                Element::mma(out[i][2 * d], p[i][step], v[0], v[1]);
                Element::mma(out[i][2 * d + 1], p[i][step], v[2], v[3]);
            }
        }
}

}  // namespace evo


namespace evo {

// Below every score that 16-bit inputs give, but finite: rows that have not met a visible key yet subtract it
// from -inf without making a NaN.
constexpr float kNoMaximum = -1e30f;

// Rescaling may wait until a row's maximum has grown by 2^8: P then stays below 256, well inside fp16.
[[maybe_unused]] constexpr float kLazyGrowth = 8.f;

__device__ __forceinline__ float masked_score() { return __int_as_float(0xff800000); }

// The largest, or the sum, over the four lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Hides keys from `length` on and, if causal, keys after their query. `row` is the query of block 0, line 0 of
// the warp, `key` the first key of the tile.
template <bool kCausal, int kBlocks, int kColumns>
__device__ __forceinline__ void mask_scores(float (&scores)[kBlocks][kColumns][4], int row, int key, int length,
                                            int lane) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = row + 16 * i + 8 * half + (lane >> 2);
            const int visible = (kCausal ? min(length, query + 1) : length) - key - 2 * (lane & 3);
#pragma unroll
            for (int j = 0; j < kColumns; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (8 * j + e >= visible) scores[i][j][2 * half + e] = masked_score();
        }
}

// Running maximum (of raw scores) and sum a row. The sum is this lane's share until `finish`.
template <int kBlocks, bool kLazy>
struct OnlineSoftmax {
    float maximum[kBlocks][2];
    float sum[kBlocks][2];

    __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) maximum[i][half] = kNoMaximum, sum[i][half] = 0.f;
    }

    // Takes a tile of scores: p = 2^(scale (score - maximum)) in 16 bits, `out` and sums rescaled to the new
    // maximum. `scale` includes log2(e).
    template <class Element, int kColumns, int kOut>
    __device__ __forceinline__ void update(u32 (&p)[kBlocks][kColumns / 2][4], float (&out)[kBlocks][kOut][4],
                                           const float (&scores)[kBlocks][kColumns][4], float scale) {
        float grown[kBlocks][2];
        largest(grown, scores);
        if (!kLazy || must_rescale(grown, scale)) rescale(out, grown, scale);
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float shift = maximum[i][half] * scale;
#pragma unroll
                for (int j = 0; j < kColumns; ++j) {
                    const float x = ex2(fmaf(scores[i][j][2 * half], scale, -shift));
                    const float y = ex2(fmaf(scores[i][j][2 * half + 1], scale, -shift));
                    sum[i][half] += x + y;
                    p[i][j / 2][half + 2 * (j & 1)] = Element::pack(x, y);
                }
            }
    }

    // Adds up the lanes' shares of the sums.
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) sum[i][half] = row_sum(sum[i][half]);
    }

    // Divides by the (finished) sums.
    template <int kOut>
    __device__ __forceinline__ void normalise(float (&out)[kBlocks][kOut][4]) const {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float inverse = rcp(sum[i][half]);
#pragma unroll
                for (int j = 0; j < kOut; ++j) out[i][j][2 * half] *= inverse, out[i][j][2 * half + 1] *= inverse;
            }
    }

private:
    template <int kColumns>
    __device__ __forceinline__ void largest(float (&grown)[kBlocks][2],
                                            const float (&scores)[kBlocks][kColumns][4]) const {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float m = maximum[i][half];
#pragma unroll
                for (int j = 0; j < kColumns; ++j)
                    m = fmaxf(m, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
                grown[i][half] = row_max(m);
            }
    }

    // One answer a warp, so that the branch never diverges.
    __device__ __forceinline__ bool must_rescale(const float (&grown)[kBlocks][2], float scale) const {
        bool any = false;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                any = any || (grown[i][half] - maximum[i][half]) * scale > kLazyGrowth;
        return __any_sync(0xffffffffu, any);
    }

    template <int kOut>
    __device__ __forceinline__ void rescale(float (&out)[kBlocks][kOut][4], const float (&grown)[kBlocks][2],
                                            float scale) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float factor = ex2((maximum[i][half] - grown[i][half]) * scale);
                maximum[i][half] = grown[i][half];
                sum[i][half] *= factor;
#pragma unroll
                for (int j = 0; j < kOut; ++j) out[i][j][2 * half] *= factor, out[i][j][2 * half + 1] *= factor;
            }
    }
};

}  // namespace evo

// tma.cuh
// The tensor memory accelerator: one instruction copies a box of a tensor between global and shared memory
// (sm_90). One function per PTX instruction. What a box has outside the tensor reads as zero and is not written.


namespace evo {

// The driver's CUtensorMap, passed as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

// A (heads, length, columns) matrix of 16-bit elements as the four dimensions 64, length, columns / 64, heads:
// a box of `rows` rows then lies in shared memory as columns / 64 blocks of `rows` rows of 128 bytes each, the
// layout that wgmma reads with its 128-byte swizzle.
constexpr int kBlockColumns = 64;
constexpr int kBlockRowBytes = 2 * kBlockColumns;

// prefetch.tensormap
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

// cp.async.bulk.tensor.4d, global to shared: the box at (0, row, block, head); its bytes count at `barrier`.
__device__ __forceinline__ void tma_load(u32 to, const TensorMap& map, u32 barrier, int row, int block, int head) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, { %3, %4, %5, %6 }], [%2];"
                 :: "r"(to), "l"(&map), "r"(barrier), "r"(0), "r"(row), "r"(block), "r"(head) : "memory");
}

// The same into the shared memory of every CTA in `ranks` (a bit a rank), counting at each one's own barrier.
__device__ __forceinline__ void tma_load_multicast(u32 to, const TensorMap& map, u32 barrier, int row, int block,
                                                   int head, u16 ranks) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, { %3, %4, %5, %6 }], [%2], %7;"
                 :: "r"(to), "l"(&map), "r"(barrier), "r"(0), "r"(row), "r"(block), "r"(head), "h"(ranks)
                 : "memory");
}

// cp.async.bulk.tensor.4d, shared to global.
__device__ __forceinline__ void tma_store(const TensorMap& map, u32 from, int row, int block, int head) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, { %2, %3, %4, %5 }], [%1];"
                 :: "l"(&map), "r"(from), "r"(0), "r"(row), "r"(block), "r"(head) : "memory");
}

// cp.async.bulk.commit_group and .wait_group.read: this thread's stores have read their shared memory.
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// The same until they have arrived in global memory.
__device__ __forceinline__ void tma_store_wait() {
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group 0;" ::: "memory");
}

// stmatrix.x4: four 8x8 matrices of 16-bit elements; lane l gives the row address of row l%8 of matrix l/8.
__device__ __forceinline__ void stmatrix_x4(u32 row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4 };"
                 :: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// stmatrix.x2: two of them; lanes from 16 on give no address.
__device__ __forceinline__ void stmatrix_x2(u32 row, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], { %1, %2 };" :: "r"(row), "r"(a), "r"(b) : "memory");
}

}  // namespace evo

// wgmma.cuh
// wgmma: matrix products of 64 rows by a warpgroup, asynchronous, operands in shared memory (sm_90a).
// Accumulators are laid out as those of mma.m16n8k16: warp w of the group has rows 16 w .. 16 w + 15.



namespace evo {

// wgmma.fence: registers written by ordinary instructions, for the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group: at most `kPending` of the latest groups are still in flight afterwards.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(kPending) : "memory");
}

// The same for a number that is a constant only once loops are unrolled.
template <int kMost = 63>
__device__ __forceinline__ void wgmma_wait(int pending) {
    if constexpr (kMost == 0) wgmma_wait<0>();
    else if (pending >= kMost) wgmma_wait<kMost>();
    else wgmma_wait<kMost - 1>(pending);
}

// Keeps the compiler from moving uses of these registers across this line: it does not know that a wgmma
// still reads or writes them.
template <int kColumns>
__device__ __forceinline__ void pin(float (&registers)[kColumns][4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(registers[j][e]) :: "memory");
}

// setmaxnreg, by all warps of a warpgroup
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(kRegisters));
}

// The descriptor of a matrix stored in rows of 128 bytes with the 128-byte swizzle, eight rows to a pattern of
// 1024 bytes. Along its rows (K-major) kBlockBytes is ignored; across them (MN-major) it is the distance from
// 64 columns to the next 64.
template <int kBlockBytes = 16>
struct MatrixDescriptor {
    u32 low;

    __device__ __forceinline__ explicit MatrixDescriptor(u32 address)
        : low((address & 0x3ffff) >> 4 | (kBlockBytes >> 4) << 16) {}
    // Of what lies `bytes` further on: one addition, as addresses end well below the field's width.
    __device__ __forceinline__ u64 at(u32 bytes) const {
        constexpr u64 kPattern = 1024, kSwizzle128 = 1;
        return ((kPattern >> 4) << 32 | kSwizzle128 << 62) | (low + (bytes >> 4));
    }
};

template <class Element>
struct OperandType;
template <>
struct OperandType<Fp16> {
    static constexpr char kName[] = "f16";
};
template <>
struct OperandType<Bf16> {
    static constexpr char kName[] = "bf16";
};

// Wgmma<N>::keys: d = (accumulate ? d : 0) + A B^T, both K-major in shared memory: 64 x 16 by N x 16.
// Wgmma<N>::values: d += A B, A 64 x 16 in registers, B 16 x N in shared memory, MN-major.
template <int kColumns>
struct Wgmma;

// Operand numbers count through the asm's list: N / 2 accumulators, then what the last arguments name.
#define EVO_ACCUMULATORS(d, j)                                                                   \
    "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3]), "+f"(d[j + 1][0]), "+f"(d[j + 1][1]), \
        "+f"(d[j + 1][2]), "+f"(d[j + 1][3])
#define EVO_NUMBERS_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define EVO_NUMBERS_2 EVO_NUMBERS_1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define EVO_NUMBERS_3 EVO_NUMBERS_2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define EVO_NUMBERS_4 EVO_NUMBERS_3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define EVO_NUMBERS_5 EVO_NUMBERS_4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define EVO_NUMBERS_6 EVO_NUMBERS_5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define EVO_NUMBERS_7 EVO_NUMBERS_6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define EVO_NUMBERS_8 EVO_NUMBERS_7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define EVO_NUMBERS_9 EVO_NUMBERS_8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define EVO_NUMBERS_10 EVO_NUMBERS_9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define EVO_NUMBERS_11 EVO_NUMBERS_10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define EVO_NUMBERS_12 EVO_NUMBERS_11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define EVO_NUMBERS_13 EVO_NUMBERS_12 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define EVO_NUMBERS_14 EVO_NUMBERS_13 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define EVO_NUMBERS_15 EVO_NUMBERS_14 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define EVO_NUMBERS_16 EVO_NUMBERS_15 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define EVO_D_1(d) EVO_ACCUMULATORS(d, 0)
#define EVO_D_2(d) EVO_D_1(d), EVO_ACCUMULATORS(d, 2)
#define EVO_D_3(d) EVO_D_2(d), EVO_ACCUMULATORS(d, 4)
#define EVO_D_4(d) EVO_D_3(d), EVO_ACCUMULATORS(d, 6)
#define EVO_D_5(d) EVO_D_4(d), EVO_ACCUMULATORS(d, 8)
#define EVO_D_6(d) EVO_D_5(d), EVO_ACCUMULATORS(d, 10)
#define EVO_D_7(d) EVO_D_6(d), EVO_ACCUMULATORS(d, 12)
#define EVO_D_8(d) EVO_D_7(d), EVO_ACCUMULATORS(d, 14)
#define EVO_D_9(d) EVO_D_8(d), EVO_ACCUMULATORS(d, 16)
#define EVO_D_10(d) EVO_D_9(d), EVO_ACCUMULATORS(d, 18)
#define EVO_D_11(d) EVO_D_10(d), EVO_ACCUMULATORS(d, 20)
#define EVO_D_12(d) EVO_D_11(d), EVO_ACCUMULATORS(d, 22)
#define EVO_D_13(d) EVO_D_12(d), EVO_ACCUMULATORS(d, 24)
#define EVO_D_14(d) EVO_D_13(d), EVO_ACCUMULATORS(d, 26)
#define EVO_D_15(d) EVO_D_14(d), EVO_ACCUMULATORS(d, 28)
#define EVO_D_16(d) EVO_D_15(d), EVO_ACCUMULATORS(d, 30)

#define EVO_WGMMA(N, SIXTEENTHS, I0, I1, I2, I3, I4, I5, I6)                                                    \
template <>                                                                                                     \
struct Wgmma<N> {                                                                                               \
    template <class Element>                                                                                    \
    static __device__ __forceinline__ void keys(float (&d)[N / 8][4], u64 a, u64 b, bool accumulate) {          \
        asm volatile("{\n"                                                                                      \
                     ".reg .pred accumulate;\n"                                                                 \
                     "setp.ne.b32 accumulate, %" #I2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #I3 ".%" #I3                            \
                     " { " EVO_NUMBERS_##SIXTEENTHS " }, %" #I0 ", %" #I1 ", accumulate, 1, 1, 0, 0;\n"         \
                     "}"                                                                                        \
                     : EVO_D_##SIXTEENTHS(d)                                                                    \
                     : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "C"(OperandType<Element>::kName)      \
                     : "memory");                                                                               \
    }                                                                                                           \
    template <class Element>                                                                                    \
    static __device__ __forceinline__ void values(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, bool accumulate) {\
        asm volatile("{\n"                                                                                      \
                     ".reg .pred accumulate;\n"                                                                 \
                     "setp.ne.b32 accumulate, %" #I5 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #I6 ".%" #I6                            \
                     " { " EVO_NUMBERS_##SIXTEENTHS " }, { %" #I0 ", %" #I1 ", %" #I2 ", %" #I3 " }, %" #I4     \
                     ", accumulate, 1, 1, 1;\n"                                                                 \
                     "}"                                                                                        \
                     : EVO_D_##SIXTEENTHS(d)                                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),   \
                       "C"(OperandType<Element>::kName)                                                         \
                     : "memory");                                                                               \
    }                                                                                                           \
};

EVO_WGMMA(16, 1, 8, 9, 10, 11, 12, 13, 14)
EVO_WGMMA(32, 2, 16, 17, 18, 19, 20, 21, 22)
EVO_WGMMA(48, 3, 24, 25, 26, 27, 28, 29, 30)
EVO_WGMMA(64, 4, 32, 33, 34, 35, 36, 37, 38)
EVO_WGMMA(80, 5, 40, 41, 42, 43, 44, 45, 46)
EVO_WGMMA(96, 6, 48, 49, 50, 51, 52, 53, 54)
EVO_WGMMA(112, 7, 56, 57, 58, 59, 60, 61, 62)
EVO_WGMMA(128, 8, 64, 65, 66, 67, 68, 69, 70)
EVO_WGMMA(144, 9, 72, 73, 74, 75, 76, 77, 78)
EVO_WGMMA(160, 10, 80, 81, 82, 83, 84, 85, 86)
EVO_WGMMA(176, 11, 88, 89, 90, 91, 92, 93, 94)
EVO_WGMMA(192, 12, 96, 97, 98, 99, 100, 101, 102)
EVO_WGMMA(208, 13, 104, 105, 106, 107, 108, 109, 110)
EVO_WGMMA(224, 14, 112, 113, 114, 115, 116, 117, 118)
EVO_WGMMA(240, 15, 120, 121, 122, 123, 124, 125, 126)
EVO_WGMMA(256, 16, 128, 129, 130, 131, 132, 133, 134)

}  // namespace evo


namespace evo {

constexpr int kGroupRows = 64;
constexpr int kGroupThreads = 128;

// x in a register: the compiler otherwise reads a kernel's argument again before every use, and waits for it.
__device__ __forceinline__ float held(float x) {
    asm volatile("" : "+f"(x));
    return x;
}

// kRows rows of kD columns as TMA boxes leave them: kD / 64 blocks of kRows rows of 128 swizzled bytes.
template <int kRows, int kD>
struct alignas(1024) BlockTile {
    static constexpr int kBlockBytes = kRows * kBlockRowBytes;
    unsigned char bytes[kD / kBlockColumns * kBlockBytes];

    // Byte offset of 8 columns of a row.
    static __device__ __forceinline__ u32 offset(int row, int chunk) {
        return chunk / 8 * kBlockBytes + row * kBlockRowBytes + ((chunk % 8 ^ (row & 7)) << 4);
    }
};

// Starts scores = (accumulate ? scores : 0) + Q K^T: 64 rows of Q, kKeys rows of K, both BlockTiles.
template <class Element, int kD, int kKeys>
__device__ __forceinline__ void multiply_keys_async(float (&scores)[kKeys / 8][4], u32 q_tile, u32 k_tile,
                                                    bool accumulate = false) {
    const MatrixDescriptor<> q(q_tile), k(k_tile);
#pragma unroll
    for (int step = 0; step < kD / 16; ++step)
        Wgmma<kKeys>::template keys<Element>(
            scores, q.at(step / 4 * BlockTile<kGroupRows, kD>::kBlockBytes + step % 4 * 32),
            k.at(step / 4 * BlockTile<kKeys, kD>::kBlockBytes + step % 4 * 32), accumulate || step > 0);
}

// Starts out = (accumulate ? out : 0) + P V for 16 kSteps keys from `v`, an address in a BlockTile<kRows, kD>: kColumns
// blocks of 8 of its columns.
template <class Element, int kD, int kRows, int kSteps, int kColumns>
__device__ __forceinline__ void multiply_values_async(float (&out)[kColumns][4], const u32 (&p)[kSteps][4], u32 v,
                                                      bool accumulate) {
    const MatrixDescriptor<BlockTile<kRows, kD>::kBlockBytes> values(v);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
        Wgmma<8 * kColumns>::template values<Element>(out, p[step], values.at(step * 16 * kBlockRowBytes),
                                            accumulate || step > 0);
}

// Raises `maximum` to the largest of this thread's scores, for its two rows.
template <int kColumns>
__device__ __forceinline__ void raise(float (&maximum)[2], const float (&scores)[kColumns][4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            maximum[half] = fmaxf(maximum[half], fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
}

// scores = 2^(scale (score - maximum)) for the column blocks [kFirst, kFirst + kCount), added to this thread's
// sums. kPolynomials of every eight go to the multiply-add pipe, evenly spread.
template <int kPolynomials, int kFirst, int kCount, int kColumns>
__device__ __forceinline__ void exponentiate(float (&scores)[kColumns][4], float (&sum)[2],
                                             const float (&maximum)[2], float scale) {
    const float shift[2] = {maximum[0] * scale, maximum[1] * scale};
#pragma unroll
    for (int j = kFirst; j < kFirst + kCount; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float x = fmaf(scores[j][e], scale, -shift[e / 2]);
            const bool polynomial = (4 * j + e) * kPolynomials % 8 < kPolynomials;
            scores[j][e] = polynomial ? exp2_poly(x) : ex2(x);
            sum[e / 2] += scores[j][e];
        }
}

// Column blocks from kFirst as the left operand of the next product.
template <class Element, int kFirst, int kSteps, int kColumns>
__device__ __forceinline__ void pack(u32 (&p)[kSteps][4], const float (&scores)[kColumns][4]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const float(&x)[4] = scores[kFirst + 2 * step + part / 2];
            p[step][part] = Element::pack(x[2 * (part & 1)], x[2 * (part & 1) + 1]);
        }
}

// Adds the sums of the rows of `p` to `sums`, laid out as an accumulator whose columns are all the same: of the rounded
// numbers that values are multiplied by, so that a row with one key, or one that counts, is that key's value exactly.
template <class Element, int kSteps>
__device__ __forceinline__ void add_rows(float (&sums)[4], const u32 (&p)[kSteps][4]) {
    const u32 ones = Element::pack(1.f, 1.f);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) Element::mma(sums, p[step], ones, ones);
}

template <int kColumns>
__device__ __forceinline__ void multiply_rows(float (&out)[kColumns][4], const float (&factor)[2]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[j][e] *= factor[e / 2];
}

// Running maximum (of raw scores) and sum of a thread's two rows. Unlike OnlineSoftmax it leaves the output
// alone: a product into it may still be in flight, and the caller rescales when that has landed.
template <bool kLazy>
struct DeferredSoftmax {
    float maximum[2] = {kNoMaximum, kNoMaximum};
    float sum[2] = {0.f, 0.f};

    // Takes a tile's scores in place. True if the output has to be multiplied by `factor` before this tile's
    // values are added to it. The sums are this lane's share until `finish`. With `room`, a maximum that moves is put
    // 2^room above the largest score.
    template <int kPolynomials, int kColumns>
    __device__ __forceinline__ bool update(float (&scores)[kColumns][4], float (&factor)[2], float scale, int room = 0) {
        float grown[2] = {room > 0 ? kNoMaximum : maximum[0], room > 0 ? kNoMaximum : maximum[1]};
        raise(grown, scores);
        const bool rescale = follow(grown, factor, scale, room);
        exponentiate<kPolynomials, 0, kColumns>(scores, sum, maximum, scale);
        return rescale;
    }

    // Moves to the maxima `grown` of this thread's scores and earlier maxima, if that has to be.
    __device__ __forceinline__ bool follow(float (&grown)[2], float (&factor)[2], float scale, int room = 0) {
        grown[0] = row_max(grown[0]);
        grown[1] = row_max(grown[1]);
        if (room > 0) {
            const float above = static_cast<float>(room) * rcp(scale);
            grown[0] = fmaxf(maximum[0], grown[0] + above);
            grown[1] = fmaxf(maximum[1], grown[1] + above);
        }
        if constexpr (kLazy) {  // one answer a warp, so that the branch never diverges
            const bool far = (grown[0] - maximum[0]) * scale > kLazyGrowth ||
                             (grown[1] - maximum[1]) * scale > kLazyGrowth;
            if (!__any_sync(0xffffffffu, far)) return false;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            factor[half] = ex2((maximum[half] - grown[half]) * scale);
            maximum[half] = grown[half];
            sum[half] *= factor[half];
        }
        return true;
    }

    // Adds up the lanes' shares of the sums.
    __device__ __forceinline__ void finish() {
        sum[0] = row_sum(sum[0]);
        sum[1] = row_sum(sum[1]);
    }
};

// Stores kBlocks column blocks of one row: `pairs` are this lane's two columns of each, `row` the row's first
// column of them. kWide: the four lanes of a row swap blocks first, and store 16 bytes each instead of 4.
template <bool kWide, int kBlocks, class Element>
__device__ __forceinline__ void store_row(Element* row, u32 (&pairs)[kBlocks], bool real, int lane) {
    const int quarter = lane & 3;
    if constexpr (kWide && kBlocks % 4 == 0) {
#pragma unroll
        for (int first = 0; first < kBlocks; first += 4) {
#pragma unroll
            for (int distance = 1; distance < 4; distance *= 2)  // transposes 4 x 4
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if ((i & distance) == 0) {
                        u32 &low = pairs[first + i], &high = pairs[first + i + distance];
                        const bool upper = quarter & distance;
                        const u32 taken = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
                        low = upper ? taken : low;
                        high = upper ? high : taken;
                    }
            if (real)
                store_global(row + 8 * (first + quarter),
                             make_uint4(pairs[first], pairs[first + 1], pairs[first + 2], pairs[first + 3]));
        }
    } else if (real) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) *reinterpret_cast<u32*>(row + 8 * j + 2 * quarter) = pairs[j];
    }
}

}  // namespace evo


namespace evo {

template <bool kWide>
struct VectorOf {
    using Type = float2;
};
template <>
struct VectorOf<true> {
    using Type = float4;
};

// kCluster CTAs of kGroups parts each; kRowGroups sets of 64 rows side by side. kByBytes: CTAs send with st.async,
// counted by mbarriers, else with ordinary stores and the cluster's barrier. Shares travel as Message: float, or a
// 16-bit type, for which they are divided by their part's own sums first, so that they are no larger than values.
template <int kD, int kCluster, int kGroups, int kRowGroups, bool kByBytes, class Message = float>
struct Join {
    static constexpr bool kAsync = kByBytes && kCluster > 1;
    static constexpr int kParts = kCluster * kGroups;
    // Two CTAs, of which each keeps one of a thread's two rows: selected by values, where branches would cost more.
    static constexpr bool kPair = kCluster == 2 && kGroups == 1;
    static constexpr int kBlocks = 2 * (kD / 8) / kParts;  // column blocks of a share
    static constexpr bool kPacked = sizeof(Message) == 2;
    static constexpr int kWords = kPacked ? kBlocks : 2 * kBlocks;  // 32-bit words of a lane's share
    using Vector = typename VectorOf<kWords % 4 == 0>::Type;
    static constexpr int kVectorWords = sizeof(Vector) / 4, kVectors = kWords / kVectorWords;
    static_assert(kParts > 1 && kBlocks > 1 && kBlocks * kParts == 2 * (kD / 8), "shares are whole vectors");

    // [row group][receiving group][sender among the others]: a lane's vector is next to its neighbour's. Statistics
    // are those of a lane's share, written by one of the four lanes that have the same row.
    struct alignas(16) Storage {
        Vector partial[kRowGroups][kGroups][kParts - 1][kVectors][kGroupThreads];
        float2 statistics[kRowGroups][kGroups][kParts - 1][kGroupThreads];
    };
    static constexpr u32 kReceivedBytes = sizeof(Storage);

    static constexpr u32 kStatisticsBytes = sizeof(Storage::statistics) / 4;
    static constexpr u32 kSharesBytes = sizeof(Storage::partial);

    Storage& storage;
    // Used if kAsync: mbarriers that expect kStatisticsBytes and kSharesBytes, or one for both.
    u32 statistics_full, shares_full;
    int row_group, group, rank, thread;

    __device__ __forceinline__ int part() const { return rank * kGroups + group; }
    // Which of the thread's two rows, and which column block first, the share is.
    __device__ __forceinline__ int half() const { return part() & 1; }
    __device__ __forceinline__ int first_block() const { return (part() >> 1) * kBlocks; }

    // Maximum and finished sum of each row, to all the others.
    __device__ __forceinline__ void send_statistics(const float (&maximum)[2], const float (&sum)[2]) const {
        if constexpr (kPair) {
            if (thread % 4 == 0)
                send(&storage.statistics[row_group][0][0][thread],
                     rank ? make_float2(maximum[0], sum[0]) : make_float2(maximum[1], sum[1]), 1 - rank, statistics_full);
            return;
        }
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver != part() && thread % 4 == 0)
                send(&storage.statistics[row_group][receiver % kGroups][slot(receiver)][thread],
                     make_float2(maximum[receiver & 1], sum[receiver & 1]), receiver / kGroups, statistics_full);
    }

    // The others' shares of `out`, to them. `sum`: as sent.
    __device__ __forceinline__ void send_shares(const float (&out)[kD / 8][4], const float (&sum)[2]) const {
        if constexpr (kPair) {
            const float total = rank ? sum[0] : sum[1];
            const float inverse = kPacked && total > 0.f ? rcp(total) : 0.f;
            float words[kWords];
#pragma unroll
            for (int j = 0; j < kBlocks; ++j) {
                const float x = rank ? out[j][0] : out[j][2], y = rank ? out[j][1] : out[j][3];
                if constexpr (kPacked) words[j] = __uint_as_float(Message::pack(x * inverse, y * inverse));
                else words[2 * j] = x, words[2 * j + 1] = y;
            }
#pragma unroll
            for (int i = 0; i < kVectors; ++i)
                send(&storage.partial[row_group][0][0][i][thread], vector(words + i * kVectorWords), 1 - rank, shares_full);
            return;
        }
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver != part()) {
                const int half = receiver & 1;
                const float inverse = kPacked && sum[half] > 0.f ? rcp(sum[half]) : 0.f;
                float words[kWords];
#pragma unroll
                for (int i = 0; i < kWords; ++i) {
                    const float(&block)[4] = out[(receiver >> 1) * kBlocks + (kPacked ? i : i / 2)];
                    if constexpr (kPacked)
                        words[i] = __uint_as_float(Message::pack(block[2 * half] * inverse, block[2 * half + 1] * inverse));
                    else words[i] = block[2 * half + (i & 1)];
                }
#pragma unroll
                for (int i = 0; i < kVectors; ++i)
                    send(&storage.partial[row_group][receiver % kGroups][slot(receiver)][i][thread],
                         vector(words + i * kVectorWords), receiver / kGroups, shares_full);
            }
    }

    // share = this part's columns of the joint, normalised output, once the others' are here. `barrier`: a named
    // one for all parts of this CTA; `parity`: of the mbarriers' phase.
    __device__ __forceinline__ void receive(float (&share)[kBlocks][2], const float (&out)[kD / 8][4],
                                            const float (&maximum)[2], const float (&sum)[2], float scale,
                                            u32 barrier, u32 parity = 0) const {
        if constexpr (kAsync) mbarrier_wait_cluster(statistics_full, parity);  // these left first: weigh while shares fly
        else await(barrier);
        float weights[kParts];  // one's own last
        weigh(weights, half() ? maximum[1] : maximum[0], half() ? sum[1] : sum[0], scale);
        // Every part's share is looked at: branches would be merged to one with a run-time index, in local memory.
#pragma unroll
        for (int j = 0; j < kBlocks; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float own = out[j][e];
#pragma unroll
                for (int receiver = 1; receiver < kParts; ++receiver) {
                    const float x = out[(receiver >> 1) * kBlocks + j][2 * (receiver & 1) + e];
                    own = receiver == part() ? x : own;
                }
                share[j][e] = weights[kParts - 1] * own;
            }
        if (kAsync && shares_full != statistics_full) mbarrier_wait_cluster(shares_full, parity);
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i)
#pragma unroll
            for (int j = 0; j < kVectors; ++j) {
                float words[kVectorWords];
                spread(words, storage.partial[row_group][group][i][j][thread]);
#pragma unroll
                for (int k = 0; k < kVectorWords; ++k) {
                    const int word = j * kVectorWords + k;
                    if constexpr (kPacked) {
                        const u32 pair = __float_as_uint(words[k]);
                        share[word][0] = fmaf(weights[i], Message::low(pair), share[word][0]);
                        share[word][1] = fmaf(weights[i], Message::high(pair), share[word][1]);
                    } else {
                        share[word / 2][word & 1] = fmaf(weights[i], words[k], share[word / 2][word & 1]);
                    }
                }
            }
    }

    // Until all parts have come here; what they sent before is then seen. Not for kAsync.
    __device__ __forceinline__ void await(u32 barrier) const {
        if constexpr (kCluster == 1) {
            barrier_sync(barrier, kRowGroups * kGroups * kGroupThreads);
        } else {
            cluster_arrive();
            cluster_wait();
        }
    }

private:
    // What each part's values count in the joint result: the others by slot, then one's own.
    __device__ __forceinline__ void weigh(float (&weights)[kParts], float maximum, float sum, float scale) const {
        float maxima[kParts], sums[kParts], top = maximum, total = 0.f;
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i) {
            const float2 other = storage.statistics[row_group][group][i][thread & ~3];
            maxima[i] = other.x;
            sums[i] = other.y;
            top = fmaxf(top, other.x);
        }
        maxima[kParts - 1] = maximum;
        sums[kParts - 1] = sum;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            weights[i] = ex2((maxima[i] - top) * scale);
            total = fmaf(weights[i], sums[i], total);
        }
        const float inverse = rcp(total);
#pragma unroll
        for (int i = 0; i < kParts; ++i) weights[i] *= kPacked && i < kParts - 1 ? inverse * sums[i] : inverse;
    }

    static __device__ __forceinline__ Vector vector(const float* words) {
        if constexpr (kVectorWords == 4) return make_float4(words[0], words[1], words[2], words[3]);
        else return make_float2(words[0], words[1]);
    }
    static __device__ __forceinline__ void spread(float (&words)[kVectorWords], Vector x) {
        words[0] = x.x, words[1] = x.y;
        if constexpr (kVectorWords == 4) words[2] = x.z, words[3] = x.w;
    }

    // Where this part's message lies among those that `receiver` gets.
    __device__ __forceinline__ int slot(int receiver) const { return (part() - receiver - 1 + kParts) % kParts; }

    template <class Sent>
    __device__ __forceinline__ void send(Sent* to, Sent x, u32 receiving_rank, u32 full) const {
        if constexpr (kCluster == 1) {
            *to = x;
        } else {
            const u32 remote = map_to_rank(shared_address(to), receiving_rank);
            if constexpr (kAsync) store_async(remote, x, map_to_rank(full, receiving_rank));
            else store_cluster(remote, x);
        }
    }
};

}  // namespace evo

// ring.cuh
// In which order tiles of keys are taken, and where in a ring of stages each of them lies.


namespace evo {

// A position in a ring: the stage, and the parity of its barriers' phase.
template <int kStages>
struct RingPosition {
    int stage, parity;

    __device__ __forceinline__ explicit RingPosition(unsigned index)
        : stage(index % kStages), parity(index / kStages & 1) {}
    __device__ __forceinline__ void advance(int steps) {
        stage += steps;  // at most kStages
        if (stage >= kStages) stage -= kStages, parity ^= 1;
    }
};

// Which tile comes next: in the order of their numbers; or halving, of those that need no mask, the first, the last, the
// middle one, the quarters, the eighths, and so on, each of these from left to right, then the others as they come. Where
// scores change steadily along the keys, a row's maximum then moves at a few tiles alone. `whole`: tiles without a mask.
// Each step is a few instructions, which run while copies do: to find a tile from its index takes a producer longer than
// consumers take for one.
template <bool kHalving>
struct TileOrder {
    int whole, index = 0, tile = 0, stride = 0;

    __device__ __forceinline__ explicit TileOrder(int whole) : whole(whole) {
        if (whole > 2) stride = 4 << (31 - __clz(whole - 2));  // so that the middle one comes after the last
    }
    __device__ __forceinline__ int next() {
        const int now = tile, last = whole - 1;
        ++index;
        if (!kHalving || index >= whole) {
            tile = index;
        } else if (index == 1) {
            tile = last;
        } else {  // odd multiples of half the stride, between the first and the last
            tile += stride;
            if (tile >= last) stride /= 2, tile = stride / 2;
        }
        return now;
    }
};

}  // namespace evo


namespace evo {

// ---- knobs ----
using Element = Fp16;
constexpr int kD = 64;
constexpr bool kCausal = false;
constexpr int kRowGroups = 2;                // sets of 64 queries a CTA
constexpr int kKeyGroups = 2;                // warpgroups that share the keys of each
constexpr int kBN = 64;                               // keys a tile
constexpr int kStages = 8;                       // tiles of K, and of V, in shared memory
constexpr int kQueryStages = 1;             // query tiles: with two the next comes while one is read
enum class KeyOrder { ascending, halving };                 // halving: the first tile, the last, the middle, the quarters, ...
constexpr KeyOrder kKeyOrder = KeyOrder::halving;
constexpr int kCluster = 1;                   // CTAs of neighbouring queries: each copies its part for all
constexpr int kKeyCtas = 1;                  // CTAs that share the keys of the same queries
using Message = float;
enum class Producer { warp, warpgroup, consumer };          // a warpgroup gives its registers to the consumers
constexpr Producer kProducer = Producer::warpgroup;
constexpr int kProducerRegisters = 32;
constexpr int kConsumerRegisters = 112;
enum class Overlap { none, values, turns };                 // what softmax runs beside: P V of the tile before;
constexpr Overlap kOverlap = Overlap::turns;        // and the products of the other warpgroups, in turns
enum class Rescale { always, lazy, late };                  // lazy: once a maximum has grown by 2^8; late: without
constexpr Rescale kRescale = Rescale::late;        // looking for maxima, once a tile's sums are too large
constexpr int kPolynomials = 0;             // of eight exponentials
enum class Epilogue { direct, wide, tma };
constexpr Epilogue kEpilogue = Epilogue::wide;
enum class GridOrder { m_fastest, head_fastest };
constexpr GridOrder kGridOrder = GridOrder::m_fastest;
constexpr bool kLongestFirst = false;         // the last queries, which see the most keys, first
constexpr bool kPersistent = false;              // CTAs stay and take one query tile after the other
constexpr int kMinCtas = 1;                    // CTAs an SM that registers are capped for
constexpr int kSmemBytes = 185344;
// ---- end of knobs ----

constexpr int kBM = kRowGroups * kGroupRows;
constexpr int kConsumers = kRowGroups * kKeyGroups;
constexpr int kClusterCtas = kCluster * kKeyCtas;
static_assert(kCluster == 1 || kKeyCtas == 1, "a cluster shares either queries' keys or keys' queries");
constexpr int kProducerThreads = kProducer == Producer::warp ? 32 : kProducer == Producer::warpgroup ? kGroupThreads : 0;
constexpr int kThreads = kConsumers * kGroupThreads + kProducerThreads;
static_assert(kProducer != Producer::warpgroup || kProducerRegisters + kConsumers * kConsumerRegisters <=
              65536 / kThreads / 8 * 8 * (kConsumers + 1), "more registers than the CTA is launched with");
constexpr int kWarpsOfTile = 4 * kRowGroups;                // warps that read each tile of keys
[[maybe_unused]] constexpr u16 kAllRanks = (1 << kCluster) - 1;
// named barriers: of the join, and for each consumer one of its turn and one of its own
[[maybe_unused]] constexpr u32 kJoinBarrier = 1, kTurnBarrier = 2, kOwnBarrier = kTurnBarrier + kConsumers;

using QTile = BlockTile<kGroupRows, kD>;
using KvTile = BlockTile<kBN, kD>;
using Scores = Accumulator<1, kBN>;
using Probabilities = u32[kBN / 16][4];
using Output = float[kD / 8][4];
using Softmax = DeferredSoftmax<kRescale == Rescale::lazy>;
using PartsJoin = Join<kD, kKeyCtas, kKeyGroups, kRowGroups, true, Message>;
struct SharedStorage {
    QTile q[kQueryStages][kRowGroups];  // O too, on its way out
    KvTile k[kStages];
    KvTile v[kStages];
    PartsJoin::Storage join;
    u64 q_full[kQueryStages][kRowGroups], q_empty[kQueryStages][kRowGroups];
    u64 k_full[kStages], k_empty[kStages];
    u64 v_full[kStages], v_empty[kStages];
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

struct Arguments {
    const TensorMap &q, &k, &v, &o_map;
    Element* o;
    int heads, length;
    float scale_log2;
};

// What a cluster works on: neighbouring query tiles of one head, one a CTA, or one query tile and a share of its
// key tiles a CTA. These are dealt out in turn, so that causal rows burden all CTAs alike.
struct Work {
    int head, first_query, tiles, share;

    __device__ __forceinline__ Work(int item, const Arguments& args, int rank) {
        const int tiles_m = count_m(args.length);
        const bool m_fastest = kGridOrder == GridOrder::m_fastest;
        head = m_fastest ? item / tiles_m : item % args.heads;
        int m = m_fastest ? item % tiles_m : item / args.heads;
        if (kLongestFirst) m = tiles_m - 1 - m;
        first_query = kCluster == 1 ? m * kBM : (m * kCluster + rank) * kBM;
        share = kKeyCtas == 1 ? 0 : rank;
        const int keys = kCausal ? min(args.length, (m + 1) * kCluster * kBM) : args.length;
        tiles = count(keys + kBN - 1);
    }
    // How many of them need no mask, the first ones: all queries of the cluster see all their keys.
    __device__ __forceinline__ int whole_tiles(const Arguments& args) const {
        return kCausal ? count(first_query / (kCluster * kBM) * (kCluster * kBM) + 1) : count(args.length);
    }
    // The first key of a tile.
    __device__ __forceinline__ int key(int tile) const { return (tile * kKeyCtas + share) * kBN; }
    // How many of the tiles that so many keys fill are this CTA's.
    __device__ __forceinline__ int count(int keys) const { return (keys / kBN - share + kKeyCtas - 1) / kKeyCtas; }
    static __device__ __forceinline__ int count_m(int length) { return (length + kCluster * kBM - 1) / (kCluster * kBM); }
};

// Visits the work of this CTA: function(work, how many came before). It is dealt out back and forth: who got the
// longest of one round gets the shortest of the next.
template <class Function>
__device__ __forceinline__ void for_all_work(const Arguments& args, Function function) {
    const int rank = kClusterCtas == 1 ? 0 : cluster_rank();
    const int cluster = blockIdx.x / kClusterCtas;
    if constexpr (kPersistent) {
        const int items = Work::count_m(args.length) * args.heads, clusters = gridDim.x / kClusterCtas;
        for (int done = 0; done * clusters < items; ++done) {
            const int item = done * clusters + (done & 1 ? clusters - 1 - cluster : cluster);
            if (item < items) function(Work(item, args, rank), done);
        }
    } else {
        function(Work(cluster, args, rank), 0);
    }
}

// A consumer tells a barrier's phases apart by their parity, so it has to see each of them: a stage that another
// key group used in between would look full while it still holds that group's tile.
static_assert(kStages % kKeyGroups == 0, "every stage belongs to one key group");

// Late: a sum of exponentials that a tile may add before they are scaled down. Each of them is below it, and so inside
// the storage type. As fp32 they are right up to kMostMended; beyond it the tile is done again.
[[maybe_unused]] constexpr float kMostAdded = 49152.f;
[[maybe_unused]] constexpr float kMostMended = 0x1p100f;
// How far below 1 the largest exponential lies at first, and a row's sum once it was scaled down (log2): the further, the
// longer a maximum may grow. The row is scaled down if it adds more than kLeastMended.
[[maybe_unused]] constexpr int kRoom = 5, kRoomMended = 8;
[[maybe_unused]] constexpr float kLeastMended = 16.f;
static_assert(kRescale != Rescale::late || kPolynomials == 0, "only ex2 says by infinity that a score is too large");

using Position = RingPosition<kStages>;
using QueryPosition = RingPosition<kQueryStages>;

// One tile of keys or values, once its stage is empty. In a cluster each CTA copies a part for all.
__device__ __forceinline__ void copy_tile(KvTile* ring, u64* full, u64* empty, const TensorMap& map, Position at,
                                          int key, int head) {
    const u32 barrier = shared_address(&full[at.stage]), to = shared_address(&ring[at.stage]);
    mbarrier_wait(shared_address(&empty[at.stage]), at.parity ^ 1);
    mbarrier_expect(barrier, sizeof(KvTile));
    if constexpr (kCluster == 1) {
        tma_load(to, map, barrier, key, 0, head);
    } else {
        constexpr int kPart = kBN / kCluster;
        const int first = cluster_rank() * kPart;
#pragma unroll
        for (int block = 0; block < kD / kBlockColumns; ++block)
            tma_load_multicast(to + block * KvTile::kBlockBytes + first * kBlockRowBytes, map, barrier, key + first,
                               block, head, kAllRanks);
    }
}

// The queries of each row group, once its consumers have read those before.
__device__ __forceinline__ void copy_queries(SharedStorage& shared, const Arguments& args, const Work& work,
                                             int done) {
    const QueryPosition at(done);
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
        const u32 full = shared_address(&shared.q_full[at.stage][i]);
        if constexpr (kPersistent) mbarrier_wait(shared_address(&shared.q_empty[at.stage][i]), at.parity ^ 1);
        mbarrier_expect(full, sizeof(QTile));
        tma_load(shared_address(&shared.q[at.stage][i]), args.q, full, work.first_query + i * kGroupRows, 0, work.head);
    }
}

__device__ __forceinline__ void produce(SharedStorage& shared, const Arguments& args) {
    Position keys_at(0), values_at(0);
    for_all_work(args, [&](const Work& work, int done) {
        TileOrder<kKeyOrder == KeyOrder::halving> keys(work.whole_tiles(args)), values = keys;
        const auto copy_keys = [&] {
            copy_tile(shared.k, shared.k_full, shared.k_empty, args.k, keys_at, work.key(keys.next()), work.head);
            keys_at.advance(1);
        };
        if (done > 0 && work.tiles > 0) copy_keys();  // their place is empty before that of the queries is
        copy_queries(shared, args, work, done);
        // in the order of use: with overlap a tile of keys is read before the values of the one before it
        constexpr int kAhead = kOverlap == Overlap::none ? 0 : kKeyGroups;
        for (int i = 0; i < work.tiles; ++i) {
            while (keys.index <= min(i + kAhead, work.tiles - 1)) copy_keys();
            copy_tile(shared.v, shared.v_full, shared.v_empty, args.v, values_at, work.key(values.next()), work.head);
            values_at.advance(1);
        }
    });
}

// Tells the producers that this warp has read a stage.
__device__ __forceinline__ void release(u64* empty, int lane) {
    const u32 barrier = shared_address(empty);
    if constexpr (kCluster == 1) {
        if (lane == 0) mbarrier_arrive(barrier);
    } else {
        if (lane < kCluster) mbarrier_arrive_at(barrier, lane);
    }
}

// A consumer warp: where it stands, and what it holds of the ring.
struct Consumer {
    SharedStorage& shared;
    const Arguments& args;
    int lane, warp, thread, consumer, row_group, key_group;
    int first_tile = 0;  // of the current work, counted through all work
    int tile = 0;        // of the current work; which of those without a mask it is, the producer alone knows
    Position at;         // of the current tile, in both rings
    int done = 0;        // how much work came before

    __device__ __forceinline__ Consumer(SharedStorage& shared, const Arguments& args, int warpgroup)
        : shared(shared), args(args), lane(threadIdx.x % 32), warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
          thread(threadIdx.x % kGroupThreads), consumer(warpgroup), row_group(warpgroup / kKeyGroups),
          key_group(warpgroup % kKeyGroups), at(key_group) {}

    // Consumers take turns in giving work to the Tensor Cores, so that one's softmax runs beside another's products.
    __device__ __forceinline__ void await_turn() const {
        if constexpr (kOverlap == Overlap::turns) barrier_sync(kTurnBarrier + consumer, 2 * kGroupThreads);
    }
    __device__ __forceinline__ void pass_turn() const {
        if constexpr (kOverlap == Overlap::turns)
            barrier_arrive(kTurnBarrier + (consumer + 1) % kConsumers, 2 * kGroupThreads);
    }

    __device__ __forceinline__ void await_keys() const {
        mbarrier_wait(shared_address(&shared.k_full[at.stage]), at.parity);
    }
    __device__ __forceinline__ void await_values(Position values) const {
        mbarrier_wait(shared_address(&shared.v_full[values.stage]), values.parity);
    }
    __device__ __forceinline__ void start_scores(Scores& scores) const {
        pin(scores[0]);
        wgmma_fence();
        multiply_keys_async<Element, kD, kBN>(scores[0], queries(), shared_address(&shared.k[at.stage]));
        wgmma_commit();
    }
    __device__ __forceinline__ void start_output(Output& out, const Probabilities& p, Position values) const {
        pin(out);
        wgmma_fence();
        multiply_values_async<Element, kD, kBN>(out, p, shared_address(&shared.v[values.stage]), true);
        wgmma_commit();
    }
    __device__ __forceinline__ void mask(Scores& scores, const Work& work) const {
        const int row = work.first_query + row_group * kGroupRows + warp * 16, key = work.key(tile);
        if (key + kBN > args.length || (kCausal && key + kBN > row + 1))
            mask_scores<kCausal>(scores, row, key, args.length, lane);
    }
    // A tile's scores have landed: its keys may be replaced, and after this consumer's last tile its queries. Those stay
    // where their place is the output's.
    __device__ __forceinline__ void release_keys(const Work& work) const {
        release(&shared.k_empty[at.stage], lane);
        if (tile + kKeyGroups >= work.tiles) release_queries();
    }
    __device__ __forceinline__ void release_queries() const {
        if constexpr (kPersistent && kEpilogue != Epilogue::tma) {
            if (lane == 0) mbarrier_arrive(shared_address(&shared.q_empty[QueryPosition(done).stage][row_group]));
        }
    }
    __device__ __forceinline__ u32 queries() const {
        return shared_address(&shared.q[QueryPosition(done).stage][row_group]);
    }

    // Scores have landed: masked, and then 2^(...) of them. True if the output has to be multiplied by `factor`.
    __device__ __forceinline__ bool take_scores(Scores& scores, Softmax& softmax, float (&factor)[2],
                                                const Work& work) const {
        pin(scores[0]);
        release_keys(work);
        mask(scores, work);
        return softmax.template update<kPolynomials>(scores[0], factor, args.scale_log2,
                                                     kRescale == Rescale::late ? kRoom : 0);
    }
    // The same with the maximum of earlier tiles; `added` goes to the sums if it stands.
    __device__ __forceinline__ void guess_scores(Scores& scores, const Softmax& softmax, float (&added)[2],
                                                 const Work& work) const {
        pin(scores[0]);
        mask(scores, work);
        added[0] = added[1] = 0.f;
        exponentiate<kPolynomials, 0, kBN / 8>(scores[0], added, softmax.maximum, args.scale_log2);
    }
    // Whether it stands, in this warp; else the exponentials are scaled down in their registers, or, where they overflowed
    // even there, the tile is done again, with its own maximum: by mma.sync, as the other warps of the group need not
    // come along. No wgmma is in flight.
    __device__ __forceinline__ void settle_scores(Scores& scores, Softmax& softmax, const float (&added)[2],
                                                  Output& out, const Work& work) const {
        const float most = fmaxf(added[0], added[1]);  // NaN, of inf - inf, only beside another inf
        if (__all_sync(0xffffffffu, most <= kMostAdded)) {
            softmax.sum[0] += added[0];
            softmax.sum[1] += added[1];
        } else if (__all_sync(0xffffffffu, most <= kMostMended)) {
            const float step = rcp(args.scale_log2);
            float factor[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float largest = row_max(added[half]);
                const int exponent = largest > kLeastMended ? (__float_as_int(largest) >> 23) - 127 + kRoomMended : 0;
                factor[half] = __int_as_float((127 - exponent) << 23);
                softmax.maximum[half] = fmaf(static_cast<float>(exponent), step, softmax.maximum[half]);
                softmax.sum[half] = (softmax.sum[half] + added[half]) * factor[half];
            }
            multiply_rows(scores[0], factor);
            multiply_rows(out, factor);
        } else {
            u32 q[1][kD / 16][4];
            float factor[2];
#pragma unroll
            for (int step = 0; step < kD / 16; ++step)
                load_row_operand<QTile>(q[0][step], queries(), warp * 16, step, lane);
            multiply_keys<Element, KvTile, kBN, true>(scores, q, 0, 0, shared_address(&shared.k[at.stage]), lane);
            mask(scores, work);
            softmax.template update<kPolynomials>(scores[0], factor, args.scale_log2, kRoom);
            multiply_rows(out, factor);
        }
        release_keys(work);
    }

    // Without a producer, one lane of each key group's first consumer copies for it: the first tiles ahead of
    // everything, then always the one that takes the place of a tile that all have read.
    __device__ __forceinline__ bool copies() const {
        return kProducer == Producer::consumer && row_group == 0 && warp == 0 && elect_lane();
    }
    __device__ __forceinline__ void copy_first(const Work& work) const {
        if (copies()) {
            if (key_group == 0) copy_queries(shared, args, work, 0);
            for (int tile = key_group; tile < min(kStages, work.tiles); tile += kKeyGroups) {
                copy_tile(shared.k, shared.k_full, shared.k_empty, args.k, Position(tile), work.key(tile), work.head);
                copy_tile(shared.v, shared.v_full, shared.v_empty, args.v, Position(tile), work.key(tile), work.head);
            }
        }
        __syncwarp();
    }
    __device__ __forceinline__ void replace_keys(const Work& work, int read) const {
        if constexpr (kProducer == Producer::consumer) {
            const int tile = read + kStages;
            if (read >= 0 && tile < work.tiles && copies())
                copy_tile(shared.k, shared.k_full, shared.k_empty, args.k, Position(tile), work.key(tile), work.head);
            __syncwarp();
        }
    }
    __device__ __forceinline__ void replace_values(const Work& work, int read) const {
        if constexpr (kProducer == Producer::consumer) {
            const int tile = read + kStages;
            if (read >= 0 && tile < work.tiles && copies())
                copy_tile(shared.v, shared.v_full, shared.v_empty, args.v, Position(tile), work.key(tile), work.head);
            __syncwarp();
        }
    }

    __device__ __forceinline__ void attend_in_turn(Output& out, Softmax& softmax, const Work& work) {
        for (; tile < work.tiles; tile += kKeyGroups, at.advance(kKeyGroups)) {
            Scores scores;
            Probabilities p;
            float factor[2];
            await_keys();
            start_scores(scores);
            replace_values(work, tile - kKeyGroups);
            wgmma_wait<0>();
            if constexpr (kRescale == Rescale::late) {
                guess_scores(scores, softmax, factor, work);
                settle_scores(scores, softmax, factor, out, work);
            } else {
                if (take_scores(scores, softmax, factor, work)) multiply_rows(out, factor);
            }
            pack<Element, 0>(p, scores[0]);
            await_values(at);
            start_output(out, p, at);
            replace_keys(work, tile);
            wgmma_wait<0>();
            pin(out);
            release(&shared.v_empty[at.stage], lane);
        }
    }

    // Whether a tile's values may be awaited while the tile before still holds its own: not in the same stage.
    static constexpr bool kValuesEarly = kStages > kKeyGroups;

    // The product of a tile's probabilities with V runs beside the softmax of the next tile.
    __device__ __forceinline__ void attend_overlapped(Output& out, Softmax& softmax, const Work& work) {
        // as many turns for everybody: a key group with a tile fewer takes its last one for its last product
        const int rounds = (work.tiles + kKeyGroups - 1) / kKeyGroups;
        const bool short_of_one = kKeyGroups > 1 && (rounds - 1) * kKeyGroups + key_group >= work.tiles;
        if (key_group >= work.tiles) {
            if (short_of_one) await_turn(), pass_turn();
            return;
        }
        Scores scores;
        Probabilities p;
        float factor[2];
        await_keys();
        await_turn();
        start_scores(scores);
        pass_turn();
        wgmma_wait<0>();
        take_scores(scores, softmax, factor, work);
        pack<Element, 0>(p, scores[0]);
        Position values = at;
        if constexpr (kValuesEarly) await_values(values);
        for (tile += kKeyGroups; tile < work.tiles; tile += kKeyGroups) {
            at.advance(kKeyGroups);
            if constexpr (!kValuesEarly) await_values(values);
            await_keys();
            await_turn();
            start_scores(scores);
            start_output(out, p, values);
            pass_turn();
            replace_keys(work, tile - kKeyGroups);
            replace_values(work, tile - 2 * kKeyGroups);
            wgmma_wait<1>();
            bool rescale = false;
            if constexpr (kRescale == Rescale::late) guess_scores(scores, softmax, factor, work);
            else rescale = take_scores(scores, softmax, factor, work);
            // Compilers move the exponentials behind the wait, where they run beside nothing. This keeps ours from
            // it, and the branch of another wait keeps ptxas.
            pin(scores[0]);
            if constexpr (kValuesEarly) await_values(at);
            wgmma_wait<0>();
            pin(out);
            release(&shared.v_empty[values.stage], lane);
            if constexpr (kRescale == Rescale::late) settle_scores(scores, softmax, factor, out, work);
            else if (rescale) multiply_rows(out, factor);
            pack<Element, 0>(p, scores[0]);
            values = at;
        }
        if constexpr (!kValuesEarly) await_values(values);
        if (short_of_one) await_turn();
        start_output(out, p, values);
        if (short_of_one) pass_turn();
        wgmma_wait<0>();
        pin(out);
        release(&shared.v_empty[values.stage], lane);
    }

    // Rows out of registers: straight to global memory, or through the place that Q had.
    __device__ __forceinline__ void store(const Output& out, const float (&inverse)[2], const Work& work) const {
        const int first = work.first_query + row_group * kGroupRows;
        if constexpr (kEpilogue == Epilogue::tma) {
            const u32 tile = queries();
            const int row = warp * 16 + lane % 16, chunk = lane / 16;
            barrier_sync(kOwnBarrier + consumer, kGroupThreads);  // all warps have read Q
#pragma unroll
            for (int j = 0; j < kD / 8; j += 2) {
                const float(&a)[4] = out[j];
                const float(&b)[4] = out[j + 1];
                stmatrix_x4(tile + QTile::offset(row, j + chunk), Element::pack(a[0] * inverse[0], a[1] * inverse[0]),
                            Element::pack(a[2] * inverse[1], a[3] * inverse[1]),
                            Element::pack(b[0] * inverse[0], b[1] * inverse[0]),
                            Element::pack(b[2] * inverse[1], b[3] * inverse[1]));
            }
            fence_proxy_async();
            barrier_sync(kOwnBarrier + consumer, kGroupThreads);
            if (thread == 0) {
                tma_store(args.o_map, tile, first, 0, work.head);
                tma_store_wait_read();
            }
        } else {
            Element* to = args.o + static_cast<long long>(work.head) * args.length * kD;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first + warp * 16 + 8 * half + lane / 4;
                u32 pairs[kD / 8];
#pragma unroll
                for (int j = 0; j < kD / 8; ++j)
                    pairs[j] = Element::pack(out[j][2 * half] * inverse[half], out[j][2 * half + 1] * inverse[half]);
                store_row<kEpilogue == Epilogue::wide>(to + static_cast<long long>(row) * kD, pairs, row < args.length, lane);
            }
        }
    }

    __device__ __forceinline__ void store_joined(const Output& out, const Softmax& softmax, const Work& work) const {
        constexpr u32 statistics_full = 0, shares_full = 0;
        const PartsJoin join{shared.join, statistics_full, shares_full, row_group, key_group, work.share, thread};
        join.send_statistics(softmax.maximum, softmax.sum);
        join.send_shares(out, softmax.sum);
        float share[PartsJoin::kBlocks][2];
        join.receive(share, out, softmax.maximum, softmax.sum, args.scale_log2, kJoinBarrier, done & 1);
        if constexpr (kPersistent && kKeyCtas == 1) join.await(kJoinBarrier);  // nobody sends before all have received
        const int row = work.first_query + row_group * kGroupRows + warp * 16 + lane / 4 + 8 * join.half();
        u32 pairs[PartsJoin::kBlocks];
#pragma unroll
        for (int j = 0; j < PartsJoin::kBlocks; ++j) pairs[j] = Element::pack(share[j][0], share[j][1]);
        Element* to = args.o + (static_cast<long long>(work.head) * args.length + row) * kD + 8 * join.first_block();
        store_row<kEpilogue == Epilogue::wide>(to, pairs, row < args.length, lane);
    }
    __device__ __forceinline__ void consume(const Work& work, int works_done) {
        done = works_done;
        Output out;
        Softmax softmax;
#pragma unroll
        for (int j = 0; j < kD / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) out[j][e] = 0.f;
        copy_first(work);
        const QueryPosition q_at(done);
        mbarrier_wait(shared_address(&shared.q_full[q_at.stage][row_group]), q_at.parity);
        at = Position(first_tile + key_group);
        tile = key_group;
        if constexpr (kOverlap == Overlap::none) attend_in_turn(out, softmax, work);
        else attend_overlapped(out, softmax, work);
        if (key_group >= work.tiles) release_queries();  // of which it read nothing
        first_tile += work.tiles;
        softmax.finish();
        store_joined(out, softmax, work);
        if constexpr (kPersistent && kEpilogue == Epilogue::tma) {
            if (thread == 0) mbarrier_arrive(shared_address(&shared.q_empty[q_at.stage][row_group]));
        }
    }
};

__device__ __forceinline__ void initialise(SharedStorage& shared) {
#pragma unroll
    for (int i = 0; i < kQueryStages * kRowGroups; ++i) {
        mbarrier_init(shared_address(&shared.q_full[i / kRowGroups][i % kRowGroups]), 1);
        mbarrier_init(shared_address(&shared.q_empty[i / kRowGroups][i % kRowGroups]),
                      kEpilogue == Epilogue::tma ? 1 : 4 * kKeyGroups);
    }
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
        mbarrier_init(shared_address(&shared.k_full[i]), 1);
        mbarrier_init(shared_address(&shared.v_full[i]), 1);
        mbarrier_init(shared_address(&shared.k_empty[i]), kCluster * kWarpsOfTile);
        mbarrier_init(shared_address(&shared.v_empty[i]), kCluster * kWarpsOfTile);
    }
    fence_mbarrier_init();
}

__device__ __forceinline__ void attention(SharedStorage& shared, const Arguments& args) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    if (threadIdx.x == 0) {  // ahead of the first copies
        tma_prefetch(args.q);
        tma_prefetch(args.k);
        tma_prefetch(args.v);
    }
    if (threadIdx.x == kThreads - 32) initialise(shared);
    if constexpr (kCluster > 1) {
        cluster_arrive(), cluster_wait();
    } else {
        __syncwarp();
        if constexpr (kKeyCtas > 1) cluster_arrive_relaxed();
        __syncthreads();
    }

    if (kProducer != Producer::consumer && warpgroup == kConsumers) {
        if constexpr (kProducer == Producer::warpgroup) give_registers<kProducerRegisters>();
        if (threadIdx.x / 32 == 4 * kConsumers && elect_lane()) produce(shared, args);
        __syncwarp();
        if constexpr (kKeyCtas > 1) cluster_wait();
    } else {
        if constexpr (kProducer == Producer::warpgroup) take_registers<kConsumerRegisters>();
        Consumer consumer(shared, args, warpgroup);
        if (warpgroup == kConsumers - 1) consumer.pass_turn();
        for_all_work(args, [&](const Work& work, int done) { consumer.consume(work, done); });
        if (warpgroup == 0) consumer.await_turn();  // takes back the turn that was given first
    }
    __syncwarp();  // the others may still use our barriers
    if constexpr (kCluster > 1 || (kKeyCtas > 1 && kPersistent)) cluster_arrive(), cluster_wait();
}

}  // namespace evo

// q, k, v, o_map: tensor maps (see tma.cuh), boxes of 64, kBN / kCluster, kBN / kCluster and 64 rows;
// o: (heads, length, kD), dense. Grid: a CTA a query tile (or as many as fit the GPU, if persistent).
extern "C" __global__ void __launch_bounds__(evo::kThreads, evo::kMinCtas)
flash_wgmma(const __grid_constant__ evo::TensorMap q, const __grid_constant__ evo::TensorMap k,
            const __grid_constant__ evo::TensorMap v, const __grid_constant__ evo::TensorMap o_map, evo::Element* o,
            int heads, int length, float scale_log2) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    evo::attention(*reinterpret_cast<evo::SharedStorage*>(shared_memory), {q, k, v, o_map, o, heads, length, scale_log2});
}

// evo 0.1.0 template attention/flash_wgmma_split
// problem attention B=1 H=8 L=512 D=64 causal=0 fp16
// point {"bn":64,"chunk":64,"cluster_kv":2,"copies":"threads","epilogue":"wide","exchange":"async","grid_order":"head_fastest","key_groups":1,"message":"half","polynomials":0,"row_groups":1,"share":"columns","shift":"halves"}

// Attention forward on Hopper (sm_90a) for short sequences: a cluster of CTAs, and warpgroups inside each, share
// the keys of 64 queries, so that a small problem still fills the GPU in one wave. All tiles are asked for at
// once; all scores of a warpgroup stay in registers, so that one maximum serves them and nothing is rescaled.
// join_pair.cuh
// Joining what two CTAs of a cluster found over different keys of the same query rows. Each sends the first half of its
// accumulators' columns and keeps the second, of both of a thread's rows: nothing is selected at run time. Values lie
// in shared memory so that this is right for both.
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

// warpgroup.cuh
// Attention on the 64 query rows of one warpgroup: products by wgmma, softmax and results in registers. Per
// thread, column block j of 8 columns holds elements 0, 1 of row lane/4 and 2, 3 of row lane/4 + 8 of its warp.
// exp2_poly.cuh
// 2^x without the special-function unit: the multiply-add pipe has room where a kernel waits for exponentials
// (16 a clock and SM on sm_80 and sm_90, against 128 multiply-adds).


namespace evo {

// 2^x for x below 126, within 1.02e-4 relative: below half a step of both 16-bit types. Adding 1.5 * 2^23 rounds x
// to an integer n in the low bits; a cubic (minimax of the relative error over [-1/2, 1/2] among those that are 1 at 0)
// gives 2^(x-n), and n is added to its exponent. 0 for x up to -127, -inf included: of a masked score nothing may be
// left, however large its value is. In between results may be off by 2^-126.
__device__ __forceinline__ float exp2_poly(float x) {
    constexpr float kRound = 12582912.f;
    x = fmaxf(x, -127.f);
    const float shifted = x + kRound, f = x - (shifted - kRound);
    float y = fmaf(f, 0.0550094545f, 0.242211014f);
    y = fmaf(y, f, 0.693282783f);
    y = fmaf(y, f, 1.f);
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

// x in a register: where these are scarce, ptxas otherwise reads a kernel's argument again before every use. It sees
// through an empty asm, and through a shuffle, but does not know that a lane's number is the same by both ways
// (blocks have one dimension).
__device__ __forceinline__ float held(float x) {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return __uint_as_float(__float_as_uint(x) | (lane ^ threadIdx.x % 32));
}

// What a wait is to hide must be computed before it, but ptxas moves it behind, and the wait to where its address is known.
// So the address is made of all of it: `bits` is an `or` of words that are never negative, which the compiler cannot know.
__device__ __forceinline__ u32 known_after(u32 address, u32 bits) {
    asm volatile("" : "+r"(bits));
    return address + (__any_sync(0xffffffffu, static_cast<int>(bits) < 0) ? 8 : 0);
}
__device__ __forceinline__ u32 word_of(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ u32 word_of(const void* x) { return static_cast<u32>(reinterpret_cast<u64>(x) >> 32); }

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

// The four lanes of a row swap column blocks: from its two columns of each of kBlocks blocks to a pair of columns each of
// its own block of every four. Of a pair `words` is the first column or the second, or both as 16 bits.
template <int kBlocks, class Word>
__device__ __forceinline__ void swap_blocks(Word (&words)[kBlocks], int lane) {
    static_assert(kBlocks % 4 == 0);
#pragma unroll
    for (int first = 0; first < kBlocks; first += 4)
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)  // transposes 4 x 4
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if ((i & distance) == 0) {
                    Word &low = words[first + i], &high = words[first + i + distance];
                    const bool upper = lane & distance;
                    const Word taken = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
                    low = upper ? taken : low;
                    high = upper ? high : taken;
                }
}

// Stores what lanes have then: 16 bytes each of every four blocks of a row, the first ones at `columns`.
template <int kBlocks, class Element>
__device__ __forceinline__ void store_blocks(Element* columns, const u32 (&pairs)[kBlocks], bool real) {
    if (!real) return;
#pragma unroll
    for (int first = 0; first < kBlocks; first += 4)
        store_global(columns + 8 * first,
                     make_uint4(pairs[first], pairs[first + 1], pairs[first + 2], pairs[first + 3]));
}

// Stores kBlocks column blocks of one row: `pairs` are this lane's two columns of each, `row` the row's first
// column of them. kWide: the four lanes of a row swap blocks first, and store 16 bytes each instead of 4.
template <bool kWide, int kBlocks, class Element>
__device__ __forceinline__ void store_row(Element* row, u32 (&pairs)[kBlocks], bool real, int lane) {
    if constexpr (kWide && kBlocks % 4 == 0) {
        swap_blocks(pairs, lane);
        store_blocks(row + 8 * (lane & 3), pairs, real);
    } else if (real) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) *reinterpret_cast<u32*>(row + 8 * j + 2 * (lane & 3)) = pairs[j];
    }
}

}  // namespace evo


namespace evo {

// Shares travel as Message: float, or a 16-bit type, for which they are divided by their part's own sums first, so
// that they are no larger than values. Bytes are counted by two mbarriers, which expect kStatisticsBytes and kSharesBytes.
// kWide: see store_row; lanes swap blocks while shares travel, and read those of the other CTA as if they had swapped.
template <int kD, class Message, bool kWide>
struct PairJoin {
    static constexpr int kBlocks = kD / 16;  // column blocks of a half
    static constexpr bool kSwapped = kWide && kBlocks % 4 == 0;
    static constexpr bool kPacked = sizeof(Message) == 2;
    static constexpr int kPairWords = kPacked ? 1 : 2;
    static constexpr int kWords = 2 * kPairWords * kBlocks;  // 32-bit words that a lane sends
    static_assert(kWords % 4 == 0, "shares are whole vectors");
    using Output = float[kD / 8][4];

    // A lane's vector is next to its neighbour's. The four lanes of a row have the same statistics: maximum and sum of
    // their first row, then of the second.
    struct alignas(16) Storage {
        float4 partial[kWords / 4][kGroupThreads];
        float4 statistics[kGroupThreads / 4];
    };
    static constexpr u32 kStatisticsBytes = sizeof(Storage::statistics), kSharesBytes = sizeof(Storage::partial);

    Storage& storage;
    u32 statistics_full, shares_full;
    int rank, thread;

    // Maxima and finished sums, to the other CTA.
    __device__ __forceinline__ void send_statistics(const float (&maximum)[2], const float (&sum)[2]) const {
        if (thread % 4 == 0)
            send(&storage.statistics[thread / 4], make_float4(maximum[0], sum[0], maximum[1], sum[1]), statistics_full);
    }

    // The half that the other CTA keeps, to it. `sum`: as sent.
    __device__ __forceinline__ void send_half(const Output& out, const float (&sum)[2]) const {
        float words[kWords];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float inverse = kPacked && sum[half] > 0.f ? rcp(sum[half]) : 0.f;
#pragma unroll
            for (int j = 0; j < kBlocks; ++j) {
                const float x = out[j][2 * half], y = out[j][2 * half + 1];
                if constexpr (kPacked) words[half * kBlocks + j] = __uint_as_float(Message::pack(x * inverse, y * inverse));
                else words[2 * (half * kBlocks + j)] = x, words[2 * (half * kBlocks + j) + 1] = y;
            }
        }
#pragma unroll
        for (int i = 0; i < kWords; i += 4)
            send(&storage.partial[i / 4][place(thread)],
                 make_float4(words[i], words[i + 1], words[i + 2], words[i + 3]), shares_full);
    }

    // share = this CTA's half of the joint, normalised output, once the other's is here: of each of a thread's two rows
    // pairs of columns, swapped if kSwapped. `before`: what else is computed before it waits, see known_after.
    __device__ __forceinline__ void receive(float (&share)[2][kBlocks][2], const Output& out, const float (&maximum)[2],
                                            const float (&sum)[2], float scale, u32 before) const {
        float own[2][2][kBlocks], others[2][kPairWords][kBlocks], their_weight[2];
        u32 from[4];  // of this thread's own vectors, or its word of those of its row's four lanes
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int word = kSwapped ? kPairWords * (thread & 3) : 0, sender = kSwapped ? (thread & ~3) + i : thread;
            before |= from[i] = shared_address(&storage.partial[word / 4][place(sender)]) + 4 * (word % 4);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
#pragma unroll
                for (int j = 0; j < kBlocks; ++j) own[half][e][j] = out[kBlocks + j][2 * half + e];
                if constexpr (kSwapped) swap_blocks(own[half][e], thread);
            }
        mbarrier_wait_cluster(statistics_full, 0);  // these left first: weigh while shares fly
        const float4 statistics = storage.statistics[thread / 4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float other_maximum = half ? statistics.z : statistics.x;
            const float other_sum = half ? statistics.w : statistics.y;
            const float top = fmaxf(maximum[half], other_maximum);
            const float mine = ex2((maximum[half] - top) * scale), theirs = ex2((other_maximum - top) * scale);
            const float inverse = rcp(fmaf(mine, sum[half], theirs * other_sum));
            const float my_weight = mine * inverse;
            their_weight[half] = theirs * (kPacked ? inverse * other_sum : inverse);
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    share[half][j][e] = my_weight * own[half][e][j];
                    before |= word_of(share[half][j][e]);
                }
            before |= word_of(their_weight[half]);
        }
        mbarrier_wait_cluster(known_after(shares_full, before), 0);
        read(others, from);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float x;
                    if constexpr (kPacked) {
                        const u32 pair = __float_as_uint(others[half][0][j]);
                        x = e == 0 ? Message::low(pair) : Message::high(pair);
                    } else {
                        x = others[half][e][j];
                    }
                    share[half][j][e] = fmaf(their_weight[half], x, share[half][j][e]);
                }
    }

private:
    // Where a thread's vectors lie, so that the lanes of a warp read single words of each other's from all banks.
    static __device__ __forceinline__ int place(int thread) { return thread ^ (thread >> 3 & 3); }

    // What the other CTA sent of the pairs that this thread has.
    static __device__ __forceinline__ void read(float (&others)[2][kPairWords][kBlocks], const u32 (&from)[4]) {
        constexpr int kRowBytes = sizeof(Storage::partial[0]);
        u32 words[kWords];
        if constexpr (!kSwapped) {
#pragma unroll
            for (int i = 0; i < kWords; i += 4) {
                const uint4 x = load_shared_16(from[0] + i / 4 * kRowBytes);
                words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < kPairWords; ++e) {
                    const int word = kPairWords * (half * kBlocks + j) + e;
                    if constexpr (kSwapped) {
                        const int row = kPairWords * (half * kBlocks + (j & ~3)) / 4;
                        words[word] = load_shared_4(from[j & 3] + row * kRowBytes + 4 * e);
                    }
                    others[half][e][j] = __uint_as_float(words[word]);
                }
    }

    __device__ __forceinline__ void send(float4* to, float4 x, u32 full) const {
        store_async(map_to_rank(shared_address(to), 1 - rank), x, map_to_rank(full, 1 - rank));
    }
};

}  // namespace evo

namespace evo {

// ---- knobs ----
using Element = Fp16;
constexpr int kD = 64;
constexpr bool kCausal = false;
constexpr int kRowGroups = 1;                // sets of 64 queries a CTA
constexpr int kCluster = 2;                  // CTAs that share the keys
constexpr int kGroups = 1;                   // warpgroups of a CTA that share the keys
constexpr int kTiles = 4;                         // tiles that a warpgroup has at most
constexpr int kBN = 64;                               // keys a tile
constexpr int kChunk = 64;                         // keys between exponentials and their product with V
enum class Shift { all, halves, first, none };              // the tiles whose maximum is subtracted
[[maybe_unused]] constexpr Shift kShift = Shift::halves;
constexpr int kPolynomials = 0;             // of eight exponentials
enum class Exchange { async, barrier };
constexpr bool kAsync = Exchange::async == Exchange::async;
using Message = Element;                                    // what the parts send each other shares of the output as
enum class GridOrder { m_fastest, head_fastest };
constexpr bool kHeadsFastest = GridOrder::head_fastest == GridOrder::head_fastest;
enum class Epilogue { direct, wide };
constexpr bool kWide = Epilogue::wide == Epilogue::wide;
constexpr int kSmemBytes = 78848;
// ---- end of knobs ----

constexpr int kBM = kRowGroups * kGroupRows;
[[maybe_unused]] constexpr int kSeen = (kTiles + 1) / 2;  // tiles of a part that all rows see, where all are whole
constexpr int kParts = kCluster * kGroups;
constexpr int kThreads = kRowGroups * kGroups * kGroupThreads;
// Where threads copy, each landing costs a fence and a barrier, and what is awaited delays the first product: up to 32 KB
// of V land at once, more in two halves
constexpr int kFirstValues = kTiles * kBN * kD * 2 <= 32 << 10 ? kTiles : (kTiles + 1) / 2;
[[maybe_unused]] constexpr int kValueGroups = kFirstValues < kTiles ? 2 : 1;
// named barriers: of the join, and one for each warpgroup
[[maybe_unused]] constexpr u32 kJoinBarrier = 1, kOwnBarrier = 2;

using QTile = BlockTile<kGroupRows, kD>;
using KvTile = BlockTile<kBN, kD>;
using Scores = Accumulator<1, kBN>;
using Output = float[kD / 8][4];
using Softmax = DeferredSoftmax<false>;
using PartsJoin = PairJoin<kD, Message, kWide>;
struct SharedStorage {
    QTile q[kRowGroups];
    KvTile k[kGroups][kTiles];
    KvTile v[kGroups][kTiles];
    PartsJoin::Storage join;
    u64 statistics_full, shares_full;
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

struct Sources {
    const Element *q, *k, *v;
};
// Where a thread stands: in the CTA, and its CTA in the problem.
struct Place {
    int lane, row_group, group, thread;
    int rank, head, first_query, row;  // `row` = first query of the warp
    int tiles;                         // that any of the CTA's queries sees

    __device__ __forceinline__ explicit Place(int length) {
        constexpr bool kAlone = kThreads == kGroupThreads;  // what follows stands before the first copy
        const int warpgroup = kAlone ? 0 : __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
        thread = kAlone ? threadIdx.x : threadIdx.x % kGroupThreads;
        lane = threadIdx.x % 32;
        row_group = warpgroup / kGroups;
        group = warpgroup % kGroups;
        rank = kCluster == 1 ? 0 : blockIdx.x;
        head = kHeadsFastest ? blockIdx.y : blockIdx.z;
        const int index = kHeadsFastest ? blockIdx.z : blockIdx.y, last = (kHeadsFastest ? gridDim.z : gridDim.y) - 1;
        const int m = kCausal ? last - index : index;  // the longest rows start first
        first_query = m * kBM;
        row = first_query + row_group * kGroupRows + thread / 32 * 16;
        const int keys = kCausal ? min(length, first_query + kBM) : length;
        tiles = (keys + kBN - 1) / kBN;
    }
    // Tiles are dealt out in turn, so that causal rows burden all parts alike.
    __device__ __forceinline__ int tile(int of_group, int index) const {
        return index * kParts + rank * kGroups + of_group;
    }
    // Whether all rows and kTiles tiles of every part are inside the matrix and, if causal, half of the tiles are seen by
    // all rows: such CTAs run straight through all tiles, and a mask hides what there is to hide.
    __device__ __forceinline__ bool whole(int length) const {
        return first_query + kBM <= length && (tile(kGroups - 1, kTiles - 1) + 1) * kBN <= length &&
               (!kCausal || count(kGroups - 1) == kTiles || (kTiles > 1 && first_query >= kSeen * kParts * kBN));
    }
    // How many of its kTiles tiles the group has.
    __device__ __forceinline__ int count(int of_group) const {
        return max(0, (tiles - tile(of_group, 0) + kParts - 1) / kParts);
    }
    // How many tiles the group works on. Without a causal mask all CTAs have as many keys: one that has less than kTiles
    // tiles, but any, masks what it lacks, and there is no code for other counts.
    __device__ __forceinline__ int worked(int of_group) const {
        return kCausal || count(of_group) == 0 ? count(of_group) : kTiles;
    }
};

// What the parts' messages count at.
__device__ __forceinline__ void initialise_join([[maybe_unused]] SharedStorage& shared) {
    mbarrier_init(shared_address(&shared.statistics_full), 1);
    mbarrier_init(shared_address(&shared.shares_full), 1);
    mbarrier_expect(shared_address(&shared.statistics_full), PartsJoin::kStatisticsBytes);
    mbarrier_expect(shared_address(&shared.shares_full), PartsJoin::kSharesBytes);
}

constexpr int kChunks = kD / 8;  // of a row, of 16 bytes

// A thread's own 16 bytes of rows that kCopiers threads copy: of each kCopiers / kChunks-th row the same.
template <int kCopiers>
struct Portion {
    static constexpr int kStep = kCopiers / kChunks;
    static_assert(kStep % 8 == 0, "a thread stays in its column and in its place of the swizzle");
    int row, chunk;

    __device__ __forceinline__ explicit Portion(u32 thread) : row(thread / kChunks), chunk(thread % kChunks) {}
    // Its first one in a (length, kD) matrix, of which it copies rows from `first` on. 32 bits are enough for one head.
    __device__ __forceinline__ const Element* of(const Element* matrix, int first) const {
        const Element* own = matrix + ((first + row) * kD + chunk * 8);
        asm("" : "+l"(own));  // all further ones are at constant distances: no addresses are made between copies
        return own;
    }
    // Starts copying kRows rows, the first one of which is row `first` of the matrix; those from `length` on become zeros.
    // kWhole: there are none. 8 columns come to lie where those lie whose number differs by `swap`.
    template <int kRows, bool kWhole>
    __device__ __forceinline__ void copy(u32 tile, const Element* own, int first, int length, int swap = 0) const {
        static_assert(kRows % kStep == 0);
        const u32 to = tile + BlockTile<kRows, kD>::offset(row, chunk ^ swap);
#pragma unroll
        for (int down = 0; down < kRows; down += kStep)
            cp_async_16(to + down * kBlockRowBytes, own + down * kD, kWhole || first + row + down < length);
    }
};
using TilePortion = Portion<kGroupThreads>;

// Where columns are shared, V lies so that the half which the other CTA keeps comes first.
__device__ __forceinline__ int swapped_chunk([[maybe_unused]] int rank) {
    return rank == 0 ? kD / 16 : 0;
}

// A warpgroup's tiles of K or of V, if there are any; each tile of K is a group of copies, and V is kValueGroups, also
// where there is no tile. `own`: the thread's portion of the first one.
template <bool kWhole, bool kValues>
__device__ __forceinline__ void copy_tiles(SharedStorage& shared, const Element* own, const Place& at, int length) {
    KvTile(&tiles)[kTiles] = kValues ? shared.v[at.group] : shared.k[at.group];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
        if (kWhole || i < at.worked(at.group))
            TilePortion(at.thread).copy<kBN, kWhole>(shared_address(&tiles[i]), own + i * (kParts * kBN * kD),
                                                     at.tile(at.group, i) * kBN, length,
                                                     kValues ? swapped_chunk(at.rank) : 0);
        if (!kValues || i == kFirstValues - 1 || i == kTiles - 1) cp_async_commit();
    }
}

// All threads: what is needed first is asked for first, and the rest while that is on its way. Q and the first tile of
// K are one group. kWhole: no group has fewer than kTiles tiles, and none is beyond the last key or query.
template <bool kWhole>
__device__ __forceinline__ void start_copies(SharedStorage& shared, const Sources& from, const Place& at, int length) {
    const long long head = static_cast<long long>(at.head) * length * kD;
    const Portion<kThreads> of_q(threadIdx.x);
    of_q.copy<kGroupRows, kWhole>(shared_address(&shared.q[0]), of_q.of(from.q + head, at.first_query), at.first_query,
                                  length);
    const int first = at.tile(at.group, 0) * kBN;
    copy_tiles<kWhole, false>(shared, TilePortion(at.thread).of(from.k + head, first), at, length);
    if (threadIdx.x < 32 && elect_lane()) {
        initialise_join(shared);
        fence_mbarrier_init();
    }
    __syncwarp();
    copy_tiles<kWhole, true>(shared, TilePortion(at.thread).of(from.v + head, first), at, length);
}

// Until all but the latest `younger` groups of this thread's copies have landed, and those of its warpgroup, for wgmma.
template <int kMost = kTiles - 1 + kValueGroups>
__device__ __forceinline__ void land_copies(int younger, const Place& at) {
    if (kMost > 0 && younger < kMost) return land_copies<(kMost > 0 ? kMost - 1 : 0)>(younger, at);
    cp_async_wait<kMost>();
    fence_proxy_async();
    barrier_sync(kOwnBarrier + at.group, kGroupThreads);
}
// Until tile i of K (for i = 0, and Q), or of V, is here.
__device__ __forceinline__ void await_keys([[maybe_unused]] SharedStorage& shared, const Place& at, int i) {
    if (i > 0) land_copies(kTiles - 1 - i + kValueGroups, at);  // the first ones are what the CTA began with
}
__device__ __forceinline__ void await_values([[maybe_unused]] SharedStorage& shared, const Place& at, int i) {
    if (i == 0 || i == kFirstValues) land_copies(i == 0 ? kValueGroups - 1 : 0, at);
}

// Whether a causal mask hides keys of a part's tile i where all are whole (see Place::whole): the last one begins
// less than kBM + kBN keys after the CTA's first query, and from kSeen on tiles may be hidden from all.
__device__ constexpr bool on_diagonal(int i) {
    return kCausal && (i >= kSeen || (kTiles - 1 - i) * kParts * kBN < kBM + kBN);
}

// Starts the scores of the group's tile i as soon as K has arrived, or, kAgain, when everything has. kWhole, on the
// diagonal: what Q K^T is added to is the mask, which is made while keys are awaited.
template <bool kAgain = false, bool kWhole = false>
__device__ __forceinline__ void start_scores(SharedStorage& shared, Scores& scores, const Place& at, int i) {
    const bool masked = kWhole && on_diagonal(i);
    if (masked) {
        const int key = at.tile(at.group, i) * kBN;
        clear(scores);
        mask_scores<kCausal>(scores, at.row, key, key + kBN, at.lane);
    }
    if (!kAgain) await_keys(shared, at, i);
    pin(scores[0]);
    wgmma_fence();
    multiply_keys_async<Element, kD, kBN>(scores[0], shared_address(&shared.q[at.row_group]),
                                          shared_address(&shared.k[at.group][i]), masked);
    wgmma_commit();
}

// Waits until the scores of tile i have landed (`younger` groups of wgmmas were started after them), and masks them,
// unless the part's kTiles tiles are inside the matrix (kWhole): see start_scores.
template <bool kWhole>
__device__ __forceinline__ void land_scores(Scores& scores, int younger, const Place& at, int i, int length) {
    wgmma_wait(younger);
    pin(scores[0]);
    const int key = at.tile(at.group, i) * kBN;
    if (!kWhole && (key + kBN > length || (kCausal && key + kBN > at.row + 1)))
        mask_scores<kCausal>(scores, at.row, key, length, at.lane);
}

// Starts the product of `p`, weights of the keys of tile i from kFirst on, with their values.
template <int kFirst, int kSteps>
__device__ __forceinline__ void multiply_values(SharedStorage& shared, Output& out, const u32 (&p)[kSteps][4],
                                                const Place& at, int i, bool accumulate) {
    wgmma_fence();
    multiply_values_async<Element, kD, kBN>(
        out, p, shared_address(&shared.v[at.group][i]) + kFirst * kBlockRowBytes, accumulate);
    wgmma_commit();
}

// Exponentials of tile i and their product with V, chunk by chunk. `accumulate`: out holds something already.
// kRounded: `rounded` takes the sums of what V is multiplied by (see add_rows), and the softmax's are not used.
template <bool kAgain = false, bool kRounded = false>
__device__ __forceinline__ void start_output(SharedStorage& shared, Output& out, Scores& scores, Softmax& softmax,
                                             const Place& at, int i, bool accumulate, float scale_log2,
                                             float (*rounded)[4] = nullptr) {
    {
        constexpr int kFirst = 0 * kChunk;
        u32 p[kChunk / 16][4];
        exponentiate<kPolynomials, kFirst / 8, kChunk / 8>(scores[0], softmax.sum, softmax.maximum, scale_log2);
        pack<Element, kFirst / 8>(p, scores[0]);
        if constexpr (kRounded) add_rows<Element>(*rounded, p);
        if (kFirst == 0 && !kAgain) await_values(shared, at, i);
        multiply_values<kFirst>(shared, out, p, at, i, accumulate || kFirst > 0);
    }
}

template <int kFirst, int kCount>
__device__ __forceinline__ void exponentiate_tiles(Scores (&scores)[kCount], Softmax& softmax, float scale_log2) {
#pragma unroll
    for (int i = 0; i < kFirst; ++i)
        exponentiate<kPolynomials, 0, kBN / 8>(scores[i][0], softmax.sum, softmax.maximum, scale_log2);
}

// The group's kCount tiles: exponentials of the first half of them subtract the maximum of that half while scores of the
// others are still computed, and are multiplied by what the maximum of all makes of them before they become 16 bits.
template <int kCount, bool kWhole>
__device__ __forceinline__ bool attend(SharedStorage& shared, Output& out, Softmax& softmax, const Place& at,
                                       int length, float scale_log2) {
    constexpr int kEarly = (kCount + 1) / 2;
    Scores scores[kCount];
    u32 p[kEarly][kBN / 16][4];
    float grown[2] = {kNoMaximum, kNoMaximum}, factor[2];
    start_scores<false, kWhole>(shared, scores[0], at, 0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const bool more = i + 1 < kCount;
        if (more) start_scores<false, kWhole>(shared, scores[i + 1], at, i + 1);
        if (i == kEarly) exponentiate_tiles<kEarly>(scores, softmax, scale_log2);
        land_scores<kWhole>(scores[i], more, at, i, length);
        raise(grown, scores[i][0]);
        if (i + 1 == kEarly) softmax.maximum[0] = row_max(grown[0]), softmax.maximum[1] = row_max(grown[1]);
    }
    if (kCount == kEarly) exponentiate_tiles<kEarly>(scores, softmax, scale_log2);
    softmax.follow(grown, factor, scale_log2);
#pragma unroll
    for (int i = 0; i < kEarly; ++i) {
        multiply_rows(scores[i][0], factor);
        pack<Element, 0>(p[i], scores[i][0]);
    }
#pragma unroll
    for (int i = 0; i < kEarly; ++i) {
        await_values(shared, at, i);
        multiply_values<0>(shared, out, p[i], at, i, i > 0);
    }
#pragma unroll
    for (int i = kEarly; i < kCount; ++i) start_output(shared, out, scores[i], softmax, at, i, true, scale_log2);
    softmax.finish();
    return true;
}
__device__ __forceinline__ void clear_rows(Output& out) {
#pragma unroll
    for (int j = 0; j < kD / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[j][e] = 0.f;
}

// Divides by the sums, joins the parts' results and stores them. kWhole: all rows are real.
template <bool kWhole>
__device__ __forceinline__ void finish(SharedStorage& shared, Element* to, Output& out, Softmax& softmax,
                                       const Place& at, int length, float scale_log2) {
    const int row = at.row + at.lane / 4;
    const PartsJoin join{shared.join, shared_address(&shared.statistics_full), shared_address(&shared.shares_full), at.rank,
                         at.thread};
    cluster_wait();  // the other has started: its shared memory is its own
    join.send_statistics(softmax.maximum, softmax.sum);  // while the last product is still running
    wgmma_wait<0>();
    pin(out);
    join.send_half(out, softmax.sum);
    Element* const columns = to + row * kD + at.rank * (kD / 2) + (PartsJoin::kSwapped ? 8 * (at.lane & 3) : 0);
    float share[2][PartsJoin::kBlocks][2];
    join.receive(share, out, softmax.maximum, softmax.sum, scale_log2, word_of(columns));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        u32 pairs[PartsJoin::kBlocks];
#pragma unroll
        for (int j = 0; j < PartsJoin::kBlocks; ++j) pairs[j] = Element::pack(share[half][j][0], share[half][j][1]);
        const bool real = kWhole || row + 8 * half < length;
        if constexpr (PartsJoin::kSwapped) store_blocks(columns + 8 * half * kD, pairs, real);
        else store_row<false>(columns + 8 * half * kD, pairs, real, at.lane);
    }
}

// Starts all copies, and waits until the first tile of K and Q are here. kWhole: see land_scores; all rows are real.
template <bool kWhole>
__device__ __forceinline__ void begin([[maybe_unused]] SharedStorage& shared, [[maybe_unused]] const Sources& from,
                                      [[maybe_unused]] const Place& at, [[maybe_unused]] int length) {
    start_copies<kWhole>(shared, from, at, length);
    if constexpr (kCluster > 1) cluster_arrive_relaxed();
    cp_async_wait<kTiles - 1 + kValueGroups>();
    fence_proxy_async();
    __syncthreads();
}

// Straight-line code for every count of tiles that is worked on, so that scores keep to registers, and for the CTA that
// has nothing to check. Whatever follows the last product belongs to the same branch: where branches meet, no wgmma may be in flight.
__device__ __forceinline__ void attention(SharedStorage& shared, const Sources& from, Element* o, int length,
                                          float scale_log2) {
    const Place at(length);
    Element* to = o + static_cast<long long>(at.head) * length * kD;
    Output out;
    Softmax softmax;
    scale_log2 = held(scale_log2);
    if (at.whole(length)) {
        begin<true>(shared, from, at, length);
        if (attend<kTiles, true>(shared, out, softmax, at, length, scale_log2))
            return finish<true>(shared, to, out, softmax, at, length, scale_log2);
    } else {
        begin<false>(shared, from, at, length);
        const int count = at.worked(at.group);
        if (count >= 4) {  // not ==: that makes a table of jumps, in memory that is cold
            if (attend<4, false>(shared, out, softmax, at, length, scale_log2))
                return finish<false>(shared, to, out, softmax, at, length, scale_log2);
        }
    }
    wgmma_wait<0>();
    clear_rows(out);
    softmax = {};
    finish<false>(shared, to, out, softmax, at, length, scale_log2);
}

}  // namespace evo

// o: (heads, length, kD), dense; q, k, v: tensor maps of the like (see tma.cuh), boxes of 64, kBN and kBN rows, or the
// arrays themselves. Grid: kCluster x query tiles x heads, or kCluster x heads x query tiles.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(evo::kThreads, 1)
flash_wgmma_split(const evo::Element* q, const evo::Element* k, const evo::Element* v, evo::Element* o, int length,
                  float scale_log2) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    evo::attention(*reinterpret_cast<evo::SharedStorage*>(shared_memory), evo::Sources{q, k, v}, o, length, scale_log2);
}

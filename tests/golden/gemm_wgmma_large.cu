// The product on Hopper (sm_90a): a producer copies tiles of A and B ahead by TMA, warpgroups of consumers multiply
// them by wgmma. A CTA takes tiles of kBM x kBN of C. Consumers share each tile (cooperative), or take tiles in turns,
// so that one's epilogue runs beside the other's products (pingpong). After CUTLASS's kernels of these names. What
// shared tiles become may leave late: rounded, it waits in registers, and is stored under the next tile's products.
// boxes.cuh
// Copies of boxes of a batch of matrices, by tensor maps of three dimensions: column, row, matrix (sm_90). One
// function per PTX instruction. What a box has outside of the tensor reads as zero and is not written.
// tma.cuh
// The tensor memory accelerator: one instruction copies a box of a tensor between global and shared memory
// (sm_90). One function per PTX instruction. What a box has outside the tensor reads as zero and is not written.
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


namespace evo {

// cp.async.bulk.tensor.3d, global to shared; its bytes count at `barrier`.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 barrier, int column, int row, int matrix) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, { %3, %4, %5 }], [%2];"
                 :: "r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(matrix) : "memory");
}

// The same into the shared memory of every CTA in `ranks` (a bit a rank), counting at each one's own barrier.
__device__ __forceinline__ void load_box_for(u16 ranks, u32 to, const TensorMap& map, u32 barrier, int column, int row,
                                             int matrix) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, { %3, %4, %5 }], [%2], %6;"
                 :: "r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(matrix), "h"(ranks) : "memory");
}

// cp.async.bulk.tensor.3d, shared to global.
__device__ __forceinline__ void store_box(const TensorMap& map, u32 from, int column, int row, int matrix) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, { %2, %3, %4 }], [%1];"
                 :: "l"(&map), "r"(from), "r"(column), "r"(row), "r"(matrix) : "memory");
}

// cp.async.bulk.commit_group
__device__ __forceinline__ void commit_boxes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// cp.async.bulk.wait_group.read: what was committed has read its shared memory, but for the latest kPending groups.
template <int kPending>
__device__ __forceinline__ void await_boxes_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(kPending) : "memory");
}

// st.shared.v2.f32
__device__ __forceinline__ void store_shared(u32 to, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], { %1, %2 };" :: "r"(to), "f"(x), "f"(y) : "memory");
}

}  // namespace evo

// finish.cuh
// What becomes of a sum of the product before it is rounded, and the type that it is rounded to.
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

// cluster.cuh
// CTAs that run at the same time and reach into each other's shared memory (sm_90): what needs an mbarrier, one
// function per PTX instruction.


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

// stored_product.cuh
// Products of tiles in shared memory by wgmma, each stored along K or across it, and the tiles.
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

constexpr int kSwizzledBytes = 128;                       // of a row of a block
constexpr int kSwizzledColumns = kSwizzledBytes / 2;      // 16-bit elements
constexpr int kGroupRows = 64, kGroupThreads = 128;       // of a warpgroup

// WgmmaStored<N>::run: d = (accumulate ? d : 0) + A B, A 64 x 16, B 16 x N. A lies along K, or (kATransposed) with
// its rows side by side; B along K, or (kBTransposed) with its columns side by side.
template <int kColumns>
struct WgmmaStored;

#define EVO_WGMMA_STORED(N, SIXTEENTHS, I0, I1, I2, I3, I4, I5)                                                 \
template <>                                                                                                     \
struct WgmmaStored<N> {                                                                                         \
    template <class Element, bool kATransposed, bool kBTransposed>                                              \
    static __device__ __forceinline__ void run(float (&d)[N / 8][4], u64 a, u64 b, bool accumulate) {           \
        asm volatile("{\n"                                                                                      \
                     ".reg .pred accumulate;\n"                                                                 \
                     "setp.ne.b32 accumulate, %" #I2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #I3 ".%" #I3                            \
                     " { " EVO_NUMBERS_##SIXTEENTHS " }, %" #I0 ", %" #I1 ", accumulate, 1, 1, %" #I4 ", %" #I5 ";\n"\
                     "}"                                                                                        \
                     : EVO_D_##SIXTEENTHS(d)                                                                    \
                     : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "C"(OperandType<Element>::kName),     \
                       "n"(static_cast<int>(kATransposed)), "n"(static_cast<int>(kBTransposed))                 \
                     : "memory");                                                                               \
    }                                                                                                           \
};

EVO_WGMMA_STORED(32, 2, 16, 17, 18, 19, 20, 21)
EVO_WGMMA_STORED(48, 3, 24, 25, 26, 27, 28, 29)
EVO_WGMMA_STORED(64, 4, 32, 33, 34, 35, 36, 37)
EVO_WGMMA_STORED(96, 6, 48, 49, 50, 51, 52, 53)
EVO_WGMMA_STORED(112, 7, 56, 57, 58, 59, 60, 61)
EVO_WGMMA_STORED(128, 8, 64, 65, 66, 67, 68, 69)
EVO_WGMMA_STORED(144, 9, 72, 73, 74, 75, 76, 77)
EVO_WGMMA_STORED(160, 10, 80, 81, 82, 83, 84, 85)
EVO_WGMMA_STORED(176, 11, 88, 89, 90, 91, 92, 93)
EVO_WGMMA_STORED(192, 12, 96, 97, 98, 99, 100, 101)
EVO_WGMMA_STORED(256, 16, 128, 129, 130, 131, 132, 133)

// An operand in shared memory, as boxes of 64 columns with the 128-byte swizzle leave it: kAcross rows of A (or columns
// of B) by kDeep terms. Along K: kDeep / 64 blocks of kAcross rows of 64 terms. Across: kAcross / 64 blocks of kDeep
// rows, a term each, of 64 elements.
template <int kAcross, int kDeep, bool kAlongK>
struct alignas(1024) StoredTile {
    static constexpr int kBlockRows = kAlongK ? kAcross : kDeep;
    static constexpr int kBlocks = (kAlongK ? kDeep : kAcross) / kSwizzledColumns;
    static constexpr int kBlockBytes = kBlockRows * kSwizzledBytes;
    static_assert((kAlongK ? kDeep : kAcross) % kSwizzledColumns == 0, "whole blocks of 64 columns");
    static_assert(kBlockRows % 8 == 0, "whole swizzle patterns of 8 rows");
    unsigned char bytes[kBlocks * kBlockBytes];

    using Descriptor = MatrixDescriptor<kAlongK ? 16 : kBlockBytes>;
    // Bytes from the tile's begin to row `across` (a multiple of 64, or of 8 along K) of its terms from 16 `step` on.
    static __device__ __forceinline__ constexpr u32 offset(int across, int step) {
        if (kAlongK) return step / 4 * kBlockBytes + across * kSwizzledBytes + step % 4 * 32;
        return across / kSwizzledColumns * kBlockBytes + step * 16 * kSwizzledBytes;
    }
};

// A box of C on its way out: a warp's 16 rows. Eight of them begin in different bank groups: rows of 128 and of 64 bytes
// are swizzled, others are an odd number of 16 bytes long.
constexpr int kWarpRows = kGroupRows / 4;
template <int kRowBytes>
struct alignas(kRowBytes % 64 == 0 ? 1024 : 128) OutBox {
    static constexpr bool kSwizzled = kRowBytes == kSwizzledBytes || kRowBytes == kSwizzledBytes / 2;
    static_assert(kSwizzled || kRowBytes % 32 == 16, "rows that share a bank group");
    unsigned char bytes[kWarpRows * kRowBytes];

    // Bytes from the box's begin to byte `at` of a row. A swizzle moves 16 bytes by which 128 bytes of the box they are in.
    static __device__ __forceinline__ u32 offset(int row, int at) {
        constexpr int kPieces = kRowBytes / 16;
        if constexpr (kSwizzled) return row * kRowBytes + ((at / 16 ^ (row * kPieces / 8 & (kPieces - 1))) << 4) + at % 16;
        else return row * kRowBytes + at;
    }
};

}  // namespace evo


namespace evo {

// ---- knobs ----
using Element = Bf16;
constexpr bool kATransposed = false;         // stored K x M
constexpr bool kBAcross = false;             // stored K x N
constexpr Finish kFinish = Finish::none_;
constexpr bool kWideOut = false;                     // C is fp32
constexpr bool kEvenRows = true;                   // rows of C have an even number of elements
constexpr int kConsumers = 2;                   // warpgroups that multiply
constexpr bool kPingpong = false;
constexpr int kRows = 1;                             // times 64 rows of C that a consumer has
constexpr int kBN = 256;
constexpr int kBK = 64;
constexpr int kStages = 4;
constexpr int kInFlight = 1;                    // products of stages under way when the next are issued
enum class Producer { warp, warpgroup };                      // a warpgroup gives its registers to the consumers
constexpr Producer kProducer = Producer::warpgroup;
constexpr int kProducerRegisters = 40;
constexpr int kConsumerRegisters = 232;
enum class Multicast { none, a, b };                          // the operand that two CTAs copy for each other
constexpr Multicast kMulticast = Multicast::b;
constexpr bool kPersistent = true;                // CTAs stay and take one tile after the other
constexpr bool kDown = false;                   // panels are kPanel tiles of rows, else of columns
constexpr int kPanel = 8;
constexpr bool kByGrid = false;                       // the grid has the form of the tiles
constexpr bool kStoreBoxes = true;
constexpr int kSplits = 1;                         // parts of K, whose sums are joined
constexpr bool kJoinCluster = kSplits > 1 && false;  // in a cluster of the parts, else by a workspace
constexpr int kMinCtas = 1;
constexpr int kSmemBytes = 230400;
// ---- end of knobs ----

constexpr int kBM = kRows * kGroupRows * (kPingpong ? 1 : kConsumers);
constexpr int kReaders = kPingpong ? 1 : kConsumers;  // consumers of each stage
constexpr int kCtas = kMulticast == Multicast::none ? 1 : 2;  // that copy for each other
constexpr int kClusterCtas = kJoinCluster ? kSplits : kCtas;
constexpr int kThreads = kConsumers * kGroupThreads + (kProducer == Producer::warp ? 32 : kGroupThreads);
static_assert(kProducer != Producer::warpgroup || kProducerRegisters + kConsumers * kConsumerRegisters <=
              65536 / kThreads / 8 * 8 * (kConsumers + 1), "more registers than the CTA is launched with");
static_assert(!kPingpong || kConsumers >= 2, "turns are taken by two or more");
[[maybe_unused]] constexpr u16 kAllRanks = (1 << kCtas) - 1;
// named barriers: of the whole CTA, and for each consumer one of its turn and one of its own
[[maybe_unused]] constexpr u32 kBegunBarrier = 0, kTurnBarrier = 1, kOwnBarrier = kTurnBarrier + kConsumers;

template <bool kWide> struct OutOf { using type = Element; };
template <> struct OutOf<true> { using type = float; };
using Out = OutOf<kWideOut>::type;
using Operand = OperandOf<Element, kFinish>::type;
using ATile = StoredTile<kBM, kBK, !kATransposed>;
using BTile = StoredTile<kBN, kBK, !kBAcross>;
// A warp's rows of C leave box by box, by one or two in turns: large tiles leave room for stages
constexpr int kBoxColumns = 64;
[[maybe_unused]] constexpr int kBoxBytes = kBoxColumns * sizeof(Out);
[[maybe_unused]] constexpr int kBoxesAcross = kBN / kBoxColumns, kAllBoxes = kRows * kBoxesAcross;
[[maybe_unused]] constexpr int kOutBoxes = kBoxBytes == kSwizzledBytes && kBoxesAcross % 2 == 0 ? 2 : 1;
using Sums = float[kRows][kBN / 8][4];

struct SharedStorage {
    ATile a[kStages];
    BTile b[kStages];
    OutBox<kBoxBytes> c[kConsumers][4][kOutBoxes];
    u64 full[kStages], empty[kStages];
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

// Of the sums of a tile each CTA of a cluster that joins parts of K gets so many blocks of 8 columns, from all parts.
[[maybe_unused]] constexpr int kShare = kBN / 8 / kSplits;
struct Arguments {
    const TensorMap &a, &b;
    const TensorMap& c_map;
    const Operand* other;
    int m, n, k, batch;
};

// Parts of K that are work of their own, not a cluster's.
constexpr int kDealt = kJoinCluster ? 1 : kSplits;

// A tile of C and a part of K. Tiles are dealt out in panels: kPanel tiles of one side, all tiles of the other.
struct Work {
    int m, n, matrix;       // in tiles
    int item;               // which work
    int tile, split;        // which of all tiles of all matrices
    int first, steps;       // tiles of K

    Work() = default;
    // By the place of a CTA in a grid that has the form of the tiles: nothing is divided before the first copy.
    __device__ __forceinline__ Work(const uint3& block, const Arguments& args, int rank) : item(0) {
        const u32 along = block.x / (kClusterCtas * kDealt), all = gridDim.x / (kClusterCtas * kDealt);
        split = kJoinCluster ? rank : block.x / kClusterCtas % kDealt;
        matrix = block.z;
        set(along, block.y, (block.z * gridDim.y + block.y) * all + along, args, rank);
    }
    // By its number.
    __device__ __forceinline__ Work(int item, const Arguments& args, int rank) : item(item) {
        const int down = clusters_down(args.m), across = clusters_across(args.n), all = down * across;
        split = kJoinCluster ? rank : item % kDealt;
        const int place = item / kDealt;
        matrix = args.batch == 1 ? 0 : place / all;  // divisions are slow: between tiles consumers wait for them
        const int at = place - matrix * all;
        const int length = kDown ? across : down, width = kDown ? down : across;
        const int panel = at / (kPanel * length), inside = at - panel * (kPanel * length);
        const int height = min(kPanel, width - panel * kPanel);
        const int along = height == kPanel ? inside / kPanel : inside / height;
        set(along, panel * kPanel + inside - along * height, place, args, rank);
    }
    // Along the side that is walked first, and beside it; `place` of all matrices.
    __device__ __forceinline__ void set(int along, int beside, int place, const Arguments& args, int rank) {
        m = kDown ? beside : along;
        n = kDown ? along : beside;
        if (kMulticast == Multicast::b) m = 2 * m + rank;
        if (kMulticast == Multicast::a) n = 2 * n + rank;
        tile = place * kCtas + rank;
        const int deep = (args.k + kBK - 1) / kBK;
        first = kSplits == 1 ? 0 : deep * split / kSplits;
        steps = (kSplits == 1 ? deep : deep * (split + 1) / kSplits) - first;
    }
    static __device__ __forceinline__ int clusters_down(int m) {
        constexpr int kSide = kBM * (kMulticast == Multicast::b ? 2 : 1);
        return (m + kSide - 1) / kSide;
    }
    static __device__ __forceinline__ int clusters_across(int n) {
        constexpr int kSide = kBN * (kMulticast == Multicast::a ? 2 : 1);
        return (n + kSide - 1) / kSide;
    }
};

// The first work of this CTA, computed where this stands and not where it is used: its divisions then run beside the
// making of barriers, not between that and the first copy.
__device__ __forceinline__ Work first_work(const Arguments& args) {
    const int rank = kClusterCtas == 1 ? 0 : cluster_rank();
    Work work;
    if constexpr (kByGrid) work = Work(blockIdx, args, rank);
    else work = Work(blockIdx.x / kClusterCtas, args, rank);
    asm volatile("" : "+r"(work.m), "+r"(work.n), "+r"(work.matrix), "+r"(work.first), "+r"(work.steps));
    return work;
}

// Calls function(work, how many came before) for the work of this CTA.
template <class Function>
__device__ __forceinline__ void for_all_work(const Arguments& args, Work work, Function function) {
    if constexpr (kPersistent) {
        const int rank = kClusterCtas == 1 ? 0 : cluster_rank();
        const int items = Work::clusters_down(args.m) * Work::clusters_across(args.n) * args.batch * kSplits;
        const int clusters = gridDim.x / kCtas;
        for (int done = 0;; ++done) {
            function(work, done);
            const int next = work.item + clusters;
            if (next >= items) break;
            work = Work(next, args, rank);
        }
    } else {
        function(work, 0);
    }
}

// A position in the ring: the stage, and the parity of its barriers' phase.
struct Position {
    int stage, parity;

    __device__ __forceinline__ explicit Position(int index) : stage(index % kStages), parity((index / kStages) & 1) {}
    __device__ __forceinline__ void advance() {
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
};

// A tile of an operand into a stage: box by box. In a cluster that shares it each CTA copies its part for both.
template <class Tile, bool kAlongK, int kAcross, bool kShared>
__device__ __forceinline__ void copy_tile(u32 to, const TensorMap& map, u32 barrier, int across, int term, int matrix) {
    if constexpr (!kShared) {
#pragma unroll
        for (int block = 0; block < Tile::kBlocks; ++block) {
            const int column = (kAlongK ? term : across) + block * kSwizzledColumns;
            load_box(to + block * Tile::kBlockBytes, map, barrier, column, kAlongK ? across : term, matrix);
        }
    } else if constexpr (kAlongK) {
        constexpr int kPart = kAcross / 2;
        const int first = cluster_rank() * kPart;
#pragma unroll
        for (int block = 0; block < Tile::kBlocks; ++block)
            load_box_for(kAllRanks, to + block * Tile::kBlockBytes + first * kSwizzledBytes, map, barrier,
                         term + block * kSwizzledColumns, across + first, matrix);
    } else {
        constexpr int kPart = Tile::kBlocks / 2;
        const int first = cluster_rank() * kPart;
#pragma unroll
        for (int block = 0; block < kPart; ++block)
            load_box_for(kAllRanks, to + (first + block) * Tile::kBlockBytes, map, barrier,
                         across + (first + block) * kSwizzledColumns, term, matrix);
    }
}

__device__ __forceinline__ void produce(SharedStorage& shared, const Arguments& args, const Work& first) {
    Position at(0);
    for_all_work(args, first, [&](const Work& work, int) {
        for (int step = 0; step < work.steps; ++step, at.advance()) {
            const u32 full = shared_address(&shared.full[at.stage]);
            const int term = (work.first + step) * kBK;
            mbarrier_wait(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
            mbarrier_expect(full, sizeof(ATile) + sizeof(BTile));
            copy_tile<ATile, !kATransposed, kBM, kMulticast == Multicast::a>(
                shared_address(&shared.a[at.stage]), args.a, full, work.m * kBM, term, work.matrix);
            copy_tile<BTile, !kBAcross, kBN, kMulticast == Multicast::b>(
                shared_address(&shared.b[at.stage]), args.b, full, work.n * kBN, term, work.matrix);
        }
    });
    // A CTA must not exit before the other one's last arrivals at its barriers, which nothing else waits for.
    if constexpr (kCtas > 1)
        for (int stage = 0; stage < kStages; ++stage, at.advance())
            mbarrier_wait(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
}

// A consumer warp: where it stands in its CTA.
struct Consumer {
    SharedStorage& shared;
    const Arguments& args;
    int lane, warp, thread, consumer;
    int steps_before = 0;  // of all work of this CTA so far
    u32 rounded[kRows][kBN / 8][2];  // results of the tile before
    int leaving = -1;                // which it is
    Work place;
    __device__ __forceinline__ Consumer(SharedStorage& shared, const Arguments& args, int warpgroup)
        : shared(shared), args(args), lane(threadIdx.x % 32), warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
          thread(threadIdx.x % kGroupThreads), consumer(warpgroup) {}

    __device__ __forceinline__ void await_turn() const {
        if constexpr (kPingpong) barrier_sync(kTurnBarrier + consumer, 2 * kGroupThreads);
    }
    __device__ __forceinline__ void pass_turn() const {
        if constexpr (kPingpong) barrier_arrive(kTurnBarrier + (consumer + 1) % kConsumers, 2 * kGroupThreads);
    }
    // Tells the producers that this warp has read a stage.
    __device__ __forceinline__ void release(int stage) const {
        const u32 empty = shared_address(&shared.empty[stage]);
        if constexpr (kCtas == 1) {
            if (lane == 0) mbarrier_arrive(empty);
        } else {
            if (lane < kCtas) mbarrier_arrive_at(empty, lane);
        }
    }

    // Starts the product of a stage.
    __device__ __forceinline__ void start(Sums& sums, int stage, bool accumulate) const {
        const u32 own = kPingpong ? 0 : ATile::offset(consumer * kRows * kGroupRows, 0);
        const typename ATile::Descriptor a(shared_address(&shared.a[stage]) + own);
        const typename BTile::Descriptor b(shared_address(&shared.b[stage]));
#pragma unroll
        for (int step = 0; step < kBK / 16; ++step)
#pragma unroll
            for (int i = 0; i < kRows; ++i)
                WgmmaStored<kBN>::template run<Element, kATransposed, kBAcross>(
                    sums[i], a.at(ATile::offset(i * kGroupRows, step)), b.at(BTile::offset(0, step)),
                    accumulate || step > 0);
    }

    __device__ __forceinline__ void multiply(Sums& sums, const Work& work) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) pin(sums[i]);
        Position at(steps_before), read = at;
        const auto release_read = [&] {
            release(read.stage);
            read.advance();
        };
        const auto advance = [&](int step) {
            mbarrier_wait(shared_address(&shared.full[at.stage]), at.parity);
            wgmma_fence();
            start(sums, at.stage, step > 0);
            wgmma_commit();
            if (step >= kInFlight) {
                wgmma_wait<kInFlight>();
                release_read();
            }
            at.advance();
        };
#pragma unroll
        for (int box = 0; box < kAllBoxes; ++box) {
            if (box < work.steps) advance(box);
            leave(box);
        }
        for (int step = kAllBoxes; step < work.steps; ++step) advance(step);
        pass_turn();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kRows; ++i) pin(sums[i]);
        for (int left = min(work.steps, kInFlight); left > 0; --left) release_read();
    }

    __device__ __forceinline__ static void clear(Sums& sums) {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int j = 0; j < kBN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.f;
    }

    // What the epilogue takes for two columns of a row; zeros outside of C.
    __device__ __forceinline__ float2 others(int matrix, int row, int column) const {
        if constexpr (kFinish == Finish::none_) {
            return make_float2(0.f, 0.f);
        } else if constexpr (kFinish == Finish::scale_) {
            const float scale = widened(*args.other);
            return make_float2(scale, scale);
        } else {
            const bool inside = row < args.m && column < args.n;
            const Operand* const from = args.other + operand_offset<kFinish>(matrix, row, column, args.m, args.n);
            if constexpr (kEvenRows) {
                const u32 pair = inside ? *reinterpret_cast<const u32*>(from) : 0u;
                return make_float2(Element::low(pair), Element::high(pair));
            } else {
                return make_float2(inside ? widened(from[0]) : 0.f,
                                   inside && column + 1 < args.n ? widened(from[1]) : 0.f);
            }
        }
    }

    // Two columns of a row of C, with the epilogue.
    __device__ __forceinline__ float2 result(const float (&sum)[4], int half, int matrix, int row, int column) const {
        const float2 other = others(matrix, row, column);
        return make_float2(finished<kFinish>(sum[2 * half], other.x), finished<kFinish>(sum[2 * half + 1], other.y));
    }

    // Where box `number` of a warp's rows of C waits for its TMA store.
    __device__ __forceinline__ u32 box_address(int number) const {
        return shared_address(&shared.c[consumer][warp][number % kOutBoxes]);
    }

    // Writes kBoxColumns columns of this warp's rows, pairs as fragments hold them, rounded.
    template <class Pair>
    __device__ __forceinline__ void fill_box(u32 box, Pair pair) const {
        constexpr int kChunks = kBoxColumns / 8;
        const int row = lane % 16, chunk = lane / 16;
#pragma unroll
        for (int j = 0; j + 1 < kChunks; j += 2)
            stmatrix_x4(box + OutBox<kBoxBytes>::offset(row, 16 * (j + chunk)), pair(j, 0), pair(j, 1), pair(j + 1, 0),
                        pair(j + 1, 1));
        if constexpr (kChunks % 2 == 1)
            stmatrix_x2(box + OutBox<kBoxBytes>::offset(row, 16 * (kChunks - 1)), pair(kChunks - 1, 0), pair(kChunks - 1, 1));
    }

    // Sends a box off to (top, left) of C.
    __device__ __forceinline__ void send_box(u32 box, int matrix, int top, int left) const {
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
            store_box(args.c_map, box, left, top, matrix);
            commit_boxes();
        }
    }

    // Waits until what was in the next box has left.
    __device__ __forceinline__ void await_box() const {
        if (lane == 0) await_boxes_read<kOutBoxes - 1>();
        __syncwarp();
    }

    // kBoxColumns columns of this warp's rows from (top, left) on: through a box in shared memory, by TMA.
    __device__ __forceinline__ void store_columns(const float (*sums)[4], int matrix, int top, int left, int number) const {
        const u32 box = box_address(number);
        await_box();
        if constexpr (kWideOut) {
#pragma unroll
            for (int j = 0; j < kBoxColumns / 8; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = lane / 4 + 8 * half, column = 8 * j + 2 * (lane % 4);
                    const float2 x = result(sums[j], half, matrix, top + row, left + column);
                    store_shared(box + OutBox<kBoxBytes>::offset(row, 4 * column), x.x, x.y);
                }
        } else {
            fill_box(box, [&](int j, int half) {
                const int column = 8 * j + 2 * (lane % 4);
                const float2 x = result(sums[j], half, matrix, top + lane / 4 + 8 * half, left + column);
                return Element::pack(x.x, x.y);
            });
        }
        send_box(box, matrix, top, left);
    }
    // Sums out of the way of the next products: with the epilogue, rounded.
    __device__ __forceinline__ void round(const Sums& sums, const Work& work) {
        const int top = work.m * kBM + (consumer * 4 * kRows + warp) * kWarpRows, left = work.n * kBN;
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int j = 0; j < kBN / 8; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = top + i * kGroupRows + lane / 4 + 8 * half, column = left + 8 * j + 2 * (lane % 4);
                    const float2 x = result(sums[i][j], half, work.matrix, row, column);
                    rounded[i][j][half] = Element::pack(x.x, x.y);
                }
        leaving = work.item;
    }

    // One box of the tile before.
    __device__ __forceinline__ void leave(int number) {
        if (leaving < 0) return;
        if (number == 0) place = Work(leaving, args, kCtas == 1 ? 0 : cluster_rank());  // slow: under products it is free
        const int i = number / kBoxesAcross, begin = number % kBoxesAcross * (kBoxColumns / 8);
        const u32 box = box_address(number);
        await_box();
        fill_box(box, [&](int j, int half) { return rounded[i][begin + j][half]; });
        const int top = place.m * kBM + ((consumer * kRows + i) * 4 + warp) * kWarpRows;
        send_box(box, place.matrix, top, place.n * kBN + begin * 8);
    }
    // Sums out of registers, with the epilogue: straight to global memory, or through shared memory by TMA.
    __device__ __forceinline__ void store(const Sums& sums, const Work& work) const {
        const int first = work.m * kBM + (kPingpong ? 0 : consumer * kRows * kGroupRows), left = work.n * kBN;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const int top = first + i * kGroupRows + warp * kWarpRows;
#pragma unroll
            for (int begin = 0; begin < kBN; begin += kBoxColumns)
                store_columns(&sums[i][begin / 8], work.matrix, top, left + begin, i * kBoxesAcross + begin / kBoxColumns);
        }
    }

    __device__ __forceinline__ void consume(const Work& work, int done) {
        if (!kPingpong || done % kConsumers == consumer) {
            Sums sums;
            if (kSplits > 1) clear(sums);  // a part of K may have no tile
            await_turn();
            multiply(sums, work);
            round(sums, work);
        }
        steps_before += work.steps;
    }
};

// By one thread, the producer's: with an address for each lane mbarrier.init becomes a loop over the lanes (lab/gemm.md).
__device__ __forceinline__ void initialise(SharedStorage& shared) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
        mbarrier_init(shared_address(&shared.full[i]), 1);
        mbarrier_init(shared_address(&shared.empty[i]), kCtas * 4 * kReaders);
    }
    fence_mbarrier_init();
}

__device__ __forceinline__ void product(SharedStorage& shared, const Arguments& args) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    if (threadIdx.x == 0) {
        tma_prefetch(args.a);
        tma_prefetch(args.b);
        tma_prefetch(args.c_map);
    }
    if (threadIdx.x == kConsumers * kGroupThreads) initialise(shared);
    const Work first = first_work(args);
    __syncwarp();
    if constexpr (kClusterCtas > 1) cluster_arrive_relaxed();  // the fence has told of the barriers
    if constexpr (kCtas > 1) cluster_wait();
    else if (warpgroup == kConsumers) barrier_arrive(kBegunBarrier, kThreads);  // the first copies need no consumer
    else barrier_sync(kBegunBarrier, kThreads);

    if (warpgroup == kConsumers) {
        if constexpr (kProducer == Producer::warpgroup) give_registers<kProducerRegisters>();
        if (threadIdx.x / 32 == 4 * kConsumers && elect_lane()) produce(shared, args, first);
        __syncwarp();
        if constexpr (kJoinCluster) cluster_wait();
    } else {
        if constexpr (kProducer == Producer::warpgroup) take_registers<kConsumerRegisters>();
        Consumer consumer(shared, args, warpgroup);
        if (warpgroup == kConsumers - 1) consumer.pass_turn();
        int all = 0;
        for_all_work(args, first, [&](const Work& work, int done) { consumer.consume(work, done), all = done + 1; });
#pragma unroll
        for (int box = 0; box < kAllBoxes; ++box) consumer.leave(box);
        if (kPingpong && warpgroup == all % kConsumers) consumer.await_turn();  // takes back the turn that is left
        if (kStoreBoxes && consumer.lane == 0) await_boxes_read<0>();
    }
}

}  // namespace evo

// a, b, c_map: tensor maps (see boxes.cuh). Grid: a CTA a tile and part of K, in their form or
// a row of them, or as many as fit the GPU (persistent).
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(evo::kThreads, evo::kMinCtas)
gemm_wgmma(const __grid_constant__ evo::TensorMap a, const __grid_constant__ evo::TensorMap b,
           const __grid_constant__ evo::TensorMap c_map,
           int m, int n, int k, int batch) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const evo::Operand* const other = nullptr;
    evo::product(*reinterpret_cast<evo::SharedStorage*>(shared_memory),
                 {a, b, c_map, other,
                  m, n, k, batch});
}

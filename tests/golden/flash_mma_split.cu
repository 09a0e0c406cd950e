// Attention forward on Tensor Cores: mma.sync.m16n8k16, ldmatrix, cp.async (sm_80 and up).
// kCtas CTAs (a cluster, if more than one) take kBM queries of one head. Each has kGroups groups of kWarps warps;
// every group takes each kParts-th tile of kBN keys, with rings of its own for K and V. Scores, probabilities and
// output stay in registers until the groups join what they found.
// join.cuh
// Joining what groups of warps found over different keys of the same query rows, through the shared memory of
// their CTAs: each group ends up with the final values of its own share of the columns.
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


namespace evo {

// kGroups groups in each of the kCtas CTAs of a cluster, groups of kWarps warps with kBlocks blocks of 16 rows
// and kColumns columns of 8 values each. A group's number `part` counts through the cluster.
template <int kCtas, int kGroups, int kWarps, int kBlocks, int kColumns>
struct alignas(16) Exchange {
    static constexpr int kParts = kCtas * kGroups;
    static_assert(kColumns % kParts == 0, "each group owns the same share of the columns");
    static constexpr int kShare = kColumns / kParts;
    static constexpr int kRows = kWarps * kBlocks * 16;

    // [receiver in this CTA][sender among the others]: a lane's 4 values are 16 bytes next to its neighbour's
    float4 partial[kGroups][kParts - 1][kWarps][kBlocks][kShare][32];
    float2 statistics[kParts][kRows];  // maximum and sum
};

// Writes to the same place in the shared memory of CTA `rank` of the cluster.
template <int kCtas, class Vector>
__device__ __forceinline__ void send(Vector& to, Vector x, int rank) {
    if constexpr (kCtas == 1) to = x;
    else store_cluster(map_to_rank(shared_address(&to), rank), x);
}

// Gives every other group its share of the columns, and everybody the statistics.
template <bool kLazy, int kCtas, int kGroups, int kWarps, int kBlocks, int kColumns>
__device__ __forceinline__ void send_shares(Exchange<kCtas, kGroups, kWarps, kBlocks, kColumns>& exchange,
                                            float (&share)[kBlocks][kColumns / (kCtas * kGroups)][4],
                                            const float (&out)[kBlocks][kColumns][4],
                                            const OnlineSoftmax<kBlocks, kLazy>& softmax, int part, int warp,
                                            int lane) {
    constexpr int kParts = kCtas * kGroups, kShare = kColumns / kParts;
    // Constant indices only (a run-time index would put the accumulators into local memory).
#pragma unroll
    for (int receiver = 0; receiver < kParts; ++receiver) {
        const int sender = (part - receiver - 1 + kParts) % kParts;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int j = 0; j < kShare; ++j) {
                const float(&x)[4] = out[i][receiver * kShare + j];
                if (receiver == part) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) share[i][j][e] = x[e];
                } else {
                    send<kCtas>(exchange.partial[receiver % kGroups][sender][warp][i][j][lane],
                                make_float4(x[0], x[1], x[2], x[3]), receiver / kGroups);
                }
            }
    }
    if ((lane & 3) != 0) return;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int rank = 0; rank < kCtas; ++rank)
                send<kCtas>(exchange.statistics[part][(warp * kBlocks + i) * 16 + 8 * half + (lane >> 2)],
                            make_float2(softmax.maximum[i][half], softmax.sum[i][half]), rank);
}

// Adds what the other groups have sent, each weighted by its maximum, and divides by the joint sum.
template <int kCtas, int kGroups, int kWarps, int kBlocks, int kColumns>
__device__ __forceinline__ void receive_shares(const Exchange<kCtas, kGroups, kWarps, kBlocks, kColumns>& exchange,
                                               float (&share)[kBlocks][kColumns / (kCtas * kGroups)][4], float scale,
                                               int part, int group, int warp, int lane) {
    constexpr int kParts = kCtas * kGroups, kShare = kColumns / kParts;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        float weight[kParts][2];  // by distance from this group: 0 is this group, s + 1 the s-th sender
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (warp * kBlocks + i) * 16 + 8 * half + (lane >> 2);
            float2 found[kParts];
            float maximum = kNoMaximum, sum = 0.f;
#pragma unroll
            for (int s = 0; s < kParts; ++s) {
                found[s] = exchange.statistics[(part + s) % kParts][row];
                maximum = fmaxf(maximum, found[s].x);
            }
#pragma unroll
            for (int s = 0; s < kParts; ++s) {
                weight[s][half] = ex2((found[s].x - maximum) * scale);
                sum = fmaf(found[s].y, weight[s][half], sum);
            }
            const float inverse = rcp(sum);
#pragma unroll
            for (int s = 0; s < kParts; ++s) weight[s][half] *= inverse;
        }
#pragma unroll
        for (int j = 0; j < kShare; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) share[i][j][e] *= weight[0][e / 2];
#pragma unroll
            for (int s = 0; s < kParts - 1; ++s) {
                const float4 x = exchange.partial[group][s][warp][i][j][lane];
                share[i][j][0] = fmaf(x.x, weight[s + 1][0], share[i][j][0]);
                share[i][j][1] = fmaf(x.y, weight[s + 1][0], share[i][j][1]);
                share[i][j][2] = fmaf(x.z, weight[s + 1][1], share[i][j][2]);
                share[i][j][3] = fmaf(x.w, weight[s + 1][1], share[i][j][3]);
            }
        }
    }
}

}  // namespace evo


namespace evo {

// ---- knobs ----
using Element = Bf16;
constexpr int kD = 128;
constexpr bool kCausal = true;
constexpr int kBM = 64;                               // queries a CTA
constexpr int kBN = 32;                               // keys a tile
constexpr int kWarps = 4;                         // warps of a group: they share the queries
constexpr int kGroups = 2;                     // groups of a CTA: they share the keys
constexpr int kCtas = 1;                      // CTAs of a cluster: they share the keys, too
constexpr int kKStages = 2;
constexpr int kVStages = 1;
constexpr Swizzle kSwizzle = Swizzle::pad_;
enum class QPath { shared, registers, reuse, direct };
constexpr QPath kQPath = QPath::registers;
enum class Rescale { always, lazy };
constexpr bool kLazy = Rescale::lazy == Rescale::lazy;
enum class Epilogue { direct, shared };
constexpr Epilogue kEpilogue = Epilogue::shared;
enum class GridOrder { m_fastest, head_fastest, heavy_first };
constexpr GridOrder kGridOrder = GridOrder::heavy_first;
constexpr int kMinCtas = 1;                    // CTAs an SM that registers are capped for
constexpr int kSmemBytes = 69632;
// ---- end of knobs ----

constexpr int kGroupThreads = kWarps * 32;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kParts = kCtas * kGroups;                     // that share the keys
constexpr int kBlocks = kBM / (16 * kWarps);                // blocks of 16 rows a warp
static_assert(kBlocks * 16 * kWarps == kBM, "every warp has whole blocks of 16 rows");
static_assert(kVStages <= kKStages, "the order of commits below puts K first");

using Layout = RowLayout<kD, kSwizzle>;
using QTile = Tile<Layout, kBM>;
using KvTile = Tile<Layout, kBN>;

struct Rings {
    KvTile k[kGroups][kKStages];
    KvTile v[kGroups][kVStages];
};

struct Operands { QTile q; Rings rings; };
struct Results {
    Exchange<kCtas, kGroups, kWarps, kBlocks, kD / 8> exchange;
    QTile o;
};

union SharedStorage {  // results take the operands' place
    Operands operands;
    Results results;
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

using QCopy = TileCopy<Element, Layout, kBM, kThreads>;
using QFragments = RowOperand<kBlocks, kD>;
using Scores = Accumulator<kBlocks, kBN>;
using Probabilities = RowOperand<kBlocks, kBN>;
using Output = Accumulator<kBlocks, kD>;
using OutputShare = Accumulator<kBlocks, kD / kParts>;
using Softmax = OnlineSoftmax<kBlocks, kLazy>;

// Where a thread stands: in the CTA, and its CTA in the problem.
struct Place {
    int lane, warp, group, part;  // `part` counts groups through the cluster
    u32 group_thread;
    int head, first_query, row;  // `row` = first query of the warp
    int tiles;                   // of keys that the group has to visit

    __device__ __forceinline__ explicit Place(int length) {
        const bool m_on_x = kGridOrder == GridOrder::m_fastest;
        const u32 x = blockIdx.x / kCtas;
        head = m_on_x ? blockIdx.y : x;
        int m = m_on_x ? x : blockIdx.y;
        if (kGridOrder == GridOrder::heavy_first) m = gridDim.y - 1 - m;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32 % kWarps;
        group = kGroups == 1 ? 0 : threadIdx.x / kGroupThreads;
        group_thread = kGroups == 1 ? threadIdx.x : threadIdx.x % kGroupThreads;
        part = blockIdx.x % kCtas * kGroups + group;
        first_query = m * kBM;
        row = first_query + row_in_tile();
        const u32 visible = kCausal ? min(length, first_query + kBM) : length;
        tiles = ((visible + kBN - 1) / kBN + kParts - 1 - part) / kParts;
    }
    __device__ __forceinline__ int row_in_tile() const { return warp * (kBlocks * 16); }
    __device__ __forceinline__ int key(int tile) const { return (tile * kParts + part) * kBN; }
};

__device__ __forceinline__ void sync_group(const Place& at) {
    if constexpr (kGroups == 1) __syncthreads();
    else barrier_sync(1 + at.group, kGroupThreads);
}

// A ring of kStages tiles of keys (or values) of one group.
template <int kStages>
struct Ring {
    u32 first;
    TileCopy<Element, Layout, kBN, kGroupThreads> source;

    __device__ __forceinline__ u32 tile(int index) const {
        return first + static_cast<u32>(index) % kStages * static_cast<u32>(sizeof(KvTile));
    }
    // Commits even when there is nothing left to copy, so that waits can count.
    __device__ __forceinline__ void copy(const Place& at, int index, int length) const {
        const int key = at.key(index);
        if (index < at.tiles) source.start(tile(index), key, length - key);
        cp_async_commit();
    }
};

__device__ __forceinline__ void hold_queries(QFragments& q, u32 tile, const Place& at) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int step = 0; step < kD / 16; ++step)
            load_row_operand<Layout>(q[i][step], tile, at.row_in_tile() + 16 * i, step, at.lane);
}

// Q to where it is used from. Q in shared memory is committed, but not yet waited for.
template <class Shared>
__device__ __forceinline__ void fetch_queries(Shared& shared, QFragments& q, const Element* from, const Place& at,
                                              int length) {
    const int left = length - at.first_query;
    if constexpr (kQPath == QPath::direct) {
        load_rows<kD>(q, from + at.row_in_tile() * kD, left - at.row_in_tile(), at.lane);
    } else if constexpr (kQPath == QPath::reuse) {
        QCopy(from, threadIdx.x).start(shared_address(&shared.operands.q), 0, left);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        hold_queries(q, shared_address(&shared.operands.q), at);
        __syncthreads();
    } else {
        QCopy(from, threadIdx.x).start(shared_address(&shared.operands.q), 0, left);
        cp_async_commit();
    }
}

// Q in shared memory, once it is there: all groups have copied a part of it.
template <int kPending, class Shared>
__device__ __forceinline__ u32 await_queries(Shared& shared, QFragments& q, const Place& at) {
    if constexpr (kQPath == QPath::shared || kQPath == QPath::registers) {
        const u32 tile = shared_address(&shared.operands.q);
        cp_async_wait<kPending>();
        __syncthreads();
        if constexpr (kQPath == QPath::registers) hold_queries(q, tile, at);
        return tile;
    } else {
        return 0;
    }
}

// Out of registers: the `kColumns` columns from `column` of the warp's rows.
template <int kColumns, class Shared>
__device__ __forceinline__ void store_output(Shared& shared, Element* to, const float (&out)[kBlocks][kColumns / 8][4],
                                             const Place& at, int column, int length) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = at.row_in_tile() + 16 * i + 8 * half + (at.lane >> 2);
#pragma unroll
            for (int j = 0; j < kColumns / 8; ++j) {
                const u32 pair = Element::pack(out[i][j][2 * half], out[i][j][2 * half + 1]);
                if constexpr (kEpilogue == Epilogue::shared) {
                    const u32 at_byte = Layout::offset(row, column / 8 + j) + 4 * (at.lane & 3);
                    *reinterpret_cast<u32*>(shared.results.o.bytes + at_byte) = pair;
                } else if (at.first_query + row < length) {
                    *reinterpret_cast<u32*>(to + row * kD + column + 8 * j + 2 * (at.lane & 3)) = pair;
                }
            }
        }
    if constexpr (kEpilogue == Epilogue::shared) {
        __syncthreads();
        constexpr int kCount = kD / 8 / kCtas;  // chunks of a row that this CTA's groups own
        store_rows<Layout, kBM, kCount, kThreads>(to, shared.results.o.bytes, at.part / kGroups * kCount,
                                                  length - at.first_query, threadIdx.x);
    }
}

// When the memory of the results may be written: here, and in every CTA that this one sends to.
__device__ __forceinline__ void await_results_memory() {
    if constexpr (kCtas > 1) cluster_wait();  // everybody has started; results have memory of their own
    else if constexpr (kParts > 1 || kEpilogue == Epilogue::shared) __syncthreads();  // operands are used up
}

// Divides by the sums, joins the groups' results and stores them.
template <class Shared>
__device__ __forceinline__ void finish(Shared& shared, Element* to, Output& out, Softmax& softmax, const Place& at,
                                       int length, float scale_log2) {
    softmax.finish();
    await_results_memory();
    if constexpr (kParts == 1) {
        softmax.normalise(out);
        store_output<kD>(shared, to, out, at, 0, length);
    } else {
        OutputShare share;
        send_shares(shared.results.exchange, share, out, softmax, at.part, at.warp, at.lane);
        if constexpr (kCtas == 1) __syncthreads();
        else cluster_arrive(), cluster_wait();
        receive_shares(shared.results.exchange, share, scale_log2, at.part, at.group, at.warp, at.lane);
        store_output<kD / kParts>(shared, to, share, at, at.part * (kD / kParts), length);
    }
}

__device__ __forceinline__ void attention(SharedStorage& shared, const Element* q, const Element* k, const Element* v,
                                          Element* o, int length, float scale_log2) {
    if constexpr (kCtas > 1) cluster_arrive_relaxed();
    const Place at(length);
    const long long head = static_cast<long long>(at.head) * length * kD;
    const Ring<kKStages> keys{shared_address(shared.operands.rings.k[at.group]), {k + head, at.group_thread}};
    const Ring<kVStages> values{shared_address(shared.operands.rings.v[at.group]), {v + head, at.group_thread}};
    const long long queries = head + static_cast<long long>(at.first_query) * kD;

    QFragments q_fragments;
    fetch_queries(shared, q_fragments, q + queries, at, length);
#pragma unroll
    for (int i = 0; i < kKStages; ++i) {  // commits K, V, K, V, ... as the loop goes on: its waits count on it
        const int value = i - (kKStages - kVStages) - 1;
        if (i > 0 && value >= 0) values.copy(at, value, length);
        else if (i > 0) cp_async_commit();
        keys.copy(at, i, length);
    }
    const u32 q_tile = await_queries<2 * kKStages - 1>(shared, q_fragments, at);

    Output out;
    clear(out);
    Softmax softmax;
    for (int i = 0; i < at.tiles; ++i) {
        cp_async_wait<2 * (kKStages - 1)>();
        sync_group(at);  // K of this tile is here for all, and V of the last one is free
        values.copy(at, i + kVStages - 1, length);

        Scores scores;
        multiply_keys<Element, Layout, kBN, kQPath != QPath::shared>(scores, q_fragments, q_tile,
                                                                     at.row_in_tile(), keys.tile(i), at.lane);
        const int key = at.key(i);
        if (key + kBN > length || (kCausal && key + kBN > at.row + 1))
            mask_scores<kCausal>(scores, at.row, key, length, at.lane);
        Probabilities p;
        softmax.update<Element>(p, out, scores, scale_log2);

        cp_async_wait<2 * (kVStages - 1)>();
        sync_group(at);  // V of this tile is here for all, and its K is free
        keys.copy(at, i + kKStages, length);
        multiply_values<Element, Layout, kBN>(out, p, values.tile(i), at.lane);
    }
    finish(shared, o + queries, out, softmax, at, length, scale_log2);
}

}  // namespace evo

// q, k, v, o: (heads, length, kD), dense. Grid: query tiles x heads in the order of kGridOrder, kCtas CTAs each on x.
extern "C" __global__ void __launch_bounds__(evo::kThreads, evo::kMinCtas)
flash_mma(const evo::Element* q, const evo::Element* k, const evo::Element* v, evo::Element* o, int length,
          float scale_log2) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    evo::attention(*reinterpret_cast<evo::SharedStorage*>(shared_memory), q, k, v, o, length, scale_log2);
}

// Attention forward on Tensor Cores through nvcuda::wmma (m16n16k16, sm_80 and up).
// The layout of wmma's fragments is nobody's business, so whatever needs to know rows goes through shared
// memory: scores, probabilities, and the output's products. A warp has whole blocks of 16 queries to itself,
// two lanes a row; the warps of a CTA share the tiles of K and V.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

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

// ---- knobs ----
using Half = __nv_bfloat16;                         // the type that wmma knows
using Element = Bf16;
constexpr int kD = 96;
constexpr bool kCausal = true;
constexpr int kBM = 32;                    // queries a CTA
constexpr int kBN = 32;                    // keys a tile
constexpr int kWarps = 2;
constexpr int kStages = 1;            // tiles of K and V in flight
constexpr Swizzle kSwizzle = Swizzle::none_;
enum class Matmuls { qk_only, qk_pv };
constexpr Matmuls kMatmuls = Matmuls::qk_only;
enum class State { shared, registers };
constexpr State kState = State::shared;     // where the output is kept between tiles
constexpr int kSmemBytes = 34816;
// ---- end of knobs ----

constexpr int kThreads = kWarps * 32;
constexpr int kBlocks = kBM / (16 * kWarps);     // blocks of 16 rows a warp
static_assert(kBlocks * 16 * kWarps == kBM, "every warp has whole blocks of 16 rows");

using Layout = RowLayout<kD, kSwizzle>;
constexpr int kTileStride = Layout::kRowBytes / 2;                       // elements
constexpr int kPad = kSwizzle == Swizzle::pad_ ? 4 : 0;                   // floats: 16 bytes, as in the tiles
constexpr bool kTensorPv = kMatmuls == Matmuls::qk_pv;
constexpr int kScoreStride = kBN + kPad;
constexpr int kProbabilityStride = kBN + 2 * kPad;
constexpr int kOutputStride = kD + kPad;

// What a warp bounces between fragments and rows, one block of 16 rows at a time.
struct Bounce {
    union {
        alignas(32) float scores[16 * kScoreStride];
    };
};

struct alignas(128) SharedStorage {
    Tile<Layout, kBM> q;
    Tile<Layout, kBN> k[kStages];
    Tile<Layout, kBN> v[kStages];
    Bounce bounce[kWarps];
    alignas(32) float output[kBM * kOutputStride];
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

using Sum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
using Rows = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, Half, nvcuda::wmma::row_major>;
using Keys = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, Half, nvcuda::wmma::col_major>;
using Values = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, Half, nvcuda::wmma::row_major>;

__device__ __forceinline__ const Half* halves(const unsigned char* bytes) { return reinterpret_cast<const Half*>(bytes); }

// One lane's half of a row: which row of the block, and which of every two groups of four columns.
struct Seat {
    int row, side;
    __device__ __forceinline__ Seat(int lane) : row(lane >> 1), side(lane & 1) {}
    __device__ __forceinline__ int column(int i) const { return (i >> 2) * 8 + side * 4 + (i & 3); }
};

// Maximum and sum of one row, known to both of its lanes.
struct Running {
    float maximum = -1e30f, sum = 0.f;  // finite: masked scores are -inf, and -inf - -inf is no number
};

// scores = Q K^T for 16 rows.
__device__ __forceinline__ void multiply_keys(float* scores, const Half* q, const Half* k) {
#pragma unroll
    for (int n = 0; n < kBN; n += 16) {
        Sum sum;
        nvcuda::wmma::fill_fragment(sum, 0.f);
#pragma unroll
        for (int d = 0; d < kD; d += 16) {
            Rows rows;
            Keys keys;
            nvcuda::wmma::load_matrix_sync(rows, q + d, kTileStride);
            nvcuda::wmma::load_matrix_sync(keys, k + n * kTileStride + d, kTileStride);
            nvcuda::wmma::mma_sync(sum, rows, keys, sum);
        }
        nvcuda::wmma::store_matrix_sync(scores + n, sum, kScoreStride, nvcuda::wmma::mem_row_major);
    }
}

// products (+)= P V for 16 rows.
template <bool kAdd>
__device__ __forceinline__ void multiply_values(float* products, const Half* p, const Half* v) {
#pragma unroll
    for (int d = 0; d < kD; d += 16) {
        Sum sum;
        if constexpr (kAdd) nvcuda::wmma::load_matrix_sync(sum, products + d, kOutputStride, nvcuda::wmma::mem_row_major);
        else nvcuda::wmma::fill_fragment(sum, 0.f);
#pragma unroll
        for (int n = 0; n < kBN; n += 16) {
            Rows rows;
            Values values;
            nvcuda::wmma::load_matrix_sync(rows, p + n, kProbabilityStride);
            nvcuda::wmma::load_matrix_sync(values, v + n * kTileStride + d, kTileStride);
            nvcuda::wmma::mma_sync(sum, rows, values, sum);
        }
        nvcuda::wmma::store_matrix_sync(products + d, sum, kOutputStride, nvcuda::wmma::mem_row_major);
    }
}

// Turns the scores of 16 rows into probabilities (in place, and in 16 bits where P V wants them) and returns
// the factor by which the row's output shrinks. `visible` = keys of the tile that the row may see.
template <class Shared>
__device__ __forceinline__ float soften(Shared& bounce, Running& running, Seat seat, int visible, float scale_log2) {
    float* scores = bounce.scores + seat.row * kScoreStride;
    float maximum = running.maximum;
#pragma unroll 8
    for (int i = 0; i < kBN / 2; ++i)
        if (seat.column(i) < visible) maximum = fmaxf(maximum, scores[seat.column(i)]);
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
    const float factor = ex2((running.maximum - maximum) * scale_log2), shift = maximum * scale_log2;
    float sum = 0.f;
#pragma unroll 4
    for (int i = 0; i < kBN / 2; i += 2) {
        const int column = seat.column(i);
        const float x = column < visible ? ex2(fmaf(scores[column], scale_log2, -shift)) : 0.f;
        const float y = column + 1 < visible ? ex2(fmaf(scores[column + 1], scale_log2, -shift)) : 0.f;
        sum += x + y;
        if constexpr (kTensorPv)
            *reinterpret_cast<u32*>(bounce.probabilities + seat.row * kProbabilityStride + column) = Element::pack(x, y);
        else
            scores[column] = x, scores[column + 1] = y;
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    running.sum = running.sum * factor + sum;
    running.maximum = maximum;
    return factor;
}

// The output of one lane's half of a row, where it is kept between tiles: registers ...
template <State kWhere>
struct Output {
    float values[kD / 2];
    __device__ __forceinline__ void start(float*, Seat) {
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) values[i] = 0.f;
    }
    __device__ __forceinline__ float& at(int i) { return values[i]; }
};

// ... or shared memory.
template <>
struct Output<State::shared> {
    float* row;
    int side;
    __device__ __forceinline__ void start(float* block, Seat seat) {
        row = block + seat.row * kOutputStride;
        side = seat.side;
#pragma unroll 8
        for (int i = 0; i < kD / 2; ++i) at(i) = 0.f;
    }
    __device__ __forceinline__ float& at(int i) { return row[(i >> 2) * 8 + side * 4 + (i & 3)]; }
};

// Where the output of a block of 16 rows lies, if it is kept in shared memory.
template <class Shared>
__device__ __forceinline__ float* output_block(Shared& shared, int block) {
    if constexpr (kState == State::shared) return shared.output + block * 16 * kOutputStride;
    else return nullptr;
}

// output = output factor + P V for 16 rows.
template <class Shared>
__device__ __forceinline__ void accumulate(Shared& bounce, Output<kState>& output, float* block, const Half* v,
                                           float factor, Seat seat) {
    if constexpr (kTensorPv && kState == State::shared) {
#pragma unroll 8
        for (int i = 0; i < kD / 2; ++i) output.at(i) *= factor;
        __syncwarp();
        multiply_values<true>(block, bounce.probabilities, v);
    } else if constexpr (kTensorPv) {
        __syncwarp();
        multiply_values<false>(bounce.products, bounce.probabilities, v);
        __syncwarp();
        const float* products = bounce.products + seat.row * kOutputStride;
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) output.at(i) = fmaf(output.at(i), factor, products[seat.column(i)]);
    } else {
        __syncwarp();
        const float* p = bounce.scores + seat.row * kScoreStride;
#pragma unroll(kState == State::registers ? kD / 8 : 1)
        for (int i = 0; i < kD / 2; i += 4) {
            float sum[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] = output.at(i + e) * factor;
#pragma unroll 4
            for (int key = 0; key < kBN; ++key) {
                const uint2 pairs = *reinterpret_cast<const uint2*>(v + key * kTileStride + seat.column(i));
                sum[0] = fmaf(p[key], Element::low(pairs.x), sum[0]);
                sum[1] = fmaf(p[key], Element::high(pairs.x), sum[1]);
                sum[2] = fmaf(p[key], Element::low(pairs.y), sum[2]);
                sum[3] = fmaf(p[key], Element::high(pairs.y), sum[3]);
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) output.at(i + e) = sum[e];
        }
    }
}

__device__ __forceinline__ void store_row(Element* to, Output<kState>& output, float sum, Seat seat) {
    const float inverse = rcp(sum);
#pragma unroll
    for (int i = 0; i < kD / 2; i += 4)
        *reinterpret_cast<uint2*>(to + seat.column(i)) =
            make_uint2(Element::pack(output.at(i) * inverse, output.at(i + 1) * inverse),
                       Element::pack(output.at(i + 2) * inverse, output.at(i + 3) * inverse));
}

__device__ __forceinline__ void attention(SharedStorage& shared, const Element* q, const Element* k, const Element* v,
                                          Element* o, int length, float scale_log2) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_query = blockIdx.x * kBM, first_row = first_query + warp * kBlocks * 16;
    const long long head = static_cast<long long>(blockIdx.y) * length * kD;
    const Seat seat(lane);
    const TileCopy<Element, Layout, kBN, kThreads> keys(k + head, threadIdx.x), values(v + head, threadIdx.x);
    const u32 visible_keys = kCausal ? min(length, first_query + kBM) : length;
    const int tiles = (visible_keys + kBN - 1) / kBN;

    auto fetch = [&](int tile) {  // one commit a tile, also past the end, so that waits can count
        if (tile < tiles) {
            keys.start(shared_address(&shared.k[tile % kStages]), tile * kBN, length - tile * kBN);
            values.start(shared_address(&shared.v[tile % kStages]), tile * kBN, length - tile * kBN);
        }
        cp_async_commit();
    };
    TileCopy<Element, Layout, kBM, kThreads>(q + head, threadIdx.x)
        .start(shared_address(&shared.q), first_query, length - first_query);
    for (int tile = 0; tile < kStages; ++tile) fetch(tile);

    Bounce& bounce = shared.bounce[warp];
    Running running[kBlocks];
    Output<kState> output[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) output[i].start(output_block(shared, warp * kBlocks + i), seat);

    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait<kStages - 1>();
        __syncthreads();  // the tile is here for all
        const Half* tile_k = halves(shared.k[tile % kStages].bytes);
        const Half* tile_v = halves(shared.v[tile % kStages].bytes);
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
            const int query = first_row + 16 * i + seat.row;
            const int visible = (kCausal ? min(length, query + 1) : length) - tile * kBN;
            multiply_keys(bounce.scores, halves(shared.q.bytes) + (warp * kBlocks + i) * 16 * kTileStride, tile_k);
            __syncwarp();
            const float factor = soften(bounce, running[i], seat, visible, scale_log2);
            accumulate(bounce, output[i], output_block(shared, warp * kBlocks + i), tile_v, factor, seat);
            __syncwarp();
        }
        __syncthreads();  // nobody reads the tile any more
        fetch(tile + kStages);
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        const int query = first_row + 16 * i + seat.row;
        if (query < length) store_row(o + head + static_cast<long long>(query) * kD, output[i], running[i].sum, seat);
    }
}

}  // namespace evo

// q, k, v, o: (heads, length, kD), dense. Grid: query tiles x heads.
extern "C" __global__ void __launch_bounds__(evo::kThreads)
wmma(const evo::Element* q, const evo::Element* k, const evo::Element* v, evo::Element* o, int length,
     float scale_log2) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    evo::attention(*reinterpret_cast<evo::SharedStorage*>(shared_memory), q, k, v, o, length, scale_log2);
}

// y = x W^T, W of 4 bits: a stream of weights that passes through the registers of each warp once.
// Rows of W are the rows of mma.sync's m16n8k16, rows of x its columns. A warp takes kStrips strips of 16 rows of W
// over its share of K. Its ring in shared memory is private to each lane: a lane copies what it will read itself,
// so nothing but its own copies is waited for. kDepthWarps warps and kSplit CTAs share K and join at the end.
// join.cuh
// Sums over K that several warps, and several CTAs, hold parts of: joined in one order, whoever comes last, so
// that the same inputs have the same bits.
// last_cta.cuh
// The last of several CTAs to arrive finishes what all of them have left in global memory.
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

// nibbles.cuh
// Codes of four bits as fp16 pairs without a conversion: a code in the mantissa of 1024 is 1024 + code, exactly.
// The upper nibble of a byte is there 16 times as large (after Kim et al., "Who Says Elephants Can't Run", 2022).
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


namespace evo {

// What is taken off the codes of one row: a zero point, a whole number from 0 to 15.
struct ZeroPoint {
    u32 lower, upper;  // 1024 + zero and -(64 + zero), twice each

    // `zeros`: the zero point as fp16, twice.
    static __device__ __forceinline__ ZeroPoint of(u32 zeros) {
        return {add_f16x2(zeros, 0x64006400u), sub_f16x2(0xd400d400u, zeros)};
    }
    // What codes without a zero point of their own have.
    static __device__ __forceinline__ ZeroPoint eight() { return {0x64086408u, 0xd480d480u}; }
};

// a[0..3] of m16n8k16 from the eight codes of a word: nibble r + 4 e is element e of register r. Registers 0
// and 2 are of the row with the zero point `first`, 1 and 3 of `second`.
__device__ __forceinline__ void codes_as_operand(u32 (&a)[4], u32 codes, const ZeroPoint& first,
                                                 const ZeroPoint& second) {
    constexpr u32 kLower = 0x000f000fu, kUpper = 0x00f000f0u, k1024 = 0x64006400u, kSixteenth = 0x2c002c00u;
    const u32 late = codes >> 8;
    a[0] = sub_f16x2(and_or(codes, kLower, k1024), first.lower);
    a[1] = fma_f16x2(and_or(codes, kUpper, k1024), kSixteenth, second.upper);
    a[2] = sub_f16x2(and_or(late, kLower, k1024), first.lower);
    a[3] = fma_f16x2(and_or(late, kUpper, k1024), kSixteenth, second.upper);
}

}  // namespace evo


namespace evo {

// ---- knobs ----
constexpr int kBlocks = 2;                // blocks of 8 rows of x
constexpr int kStrips = 2;                // strips of 16 rows of W a warp
constexpr int kSideWarps = 1;         // warps next to each other along N
constexpr int kDepthWarps = 8;       // warps that share K
constexpr int kSplit = 4;                  // CTAs that share K
constexpr int kStages = 4;                // groups in the ring
constexpr bool kRingOfX = 1;  // x comes through the ring, too
constexpr bool kScaleSums = 0;  // scales on fp32 sums, else on weights
constexpr bool kZeros = true;                 // zero points of their own, else 8
constexpr int kMinCtas = 1;             // CTAs an SM that registers are capped for
constexpr int kSmemBytes = 213008;
// ---- end of knobs ----

constexpr int kGroup = 128;                          // weights that share a scale
constexpr int kWarps = kSideWarps * kDepthWarps;
constexpr int kThreads = 32 * kWarps;
constexpr int kColumns = 16 * kStrips * kSideWarps;  // of y, a CTA
constexpr int kMetaBytes = kZeros ? 8 : 4;           // of two rows: scales, then zero points, fp16
constexpr int kTiles = kGroup / 64;                  // a lane's words of 16 bytes a strip

// What the lanes of a warp copy of one group.
struct Stage {
    uint4 weights[kStrips][kTiles][32];
    u32 scales[kStrips][32][kMetaBytes / 4];
    uint4 x[kBlocks][kTiles][2][32];
};

// Where they lie in it.
constexpr u32 kScales = sizeof(Stage::weights), kX = kScales + sizeof(Stage::scales);

using Sums = PartialSums<kDepthWarps, 8 * kBlocks, kColumns>;

struct SharedStorage {
    union {  // sums take the rings' place
        Stage ring[kWarps][kStages];
        Sums sums;
    };
    u32 last;
};
static_assert(sizeof(SharedStorage) == kSmemBytes, "smem model and SharedStorage disagree");

using Accumulator = float[kStrips][kBlocks][4];

__device__ __forceinline__ void clear(Accumulator& sums) {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip)
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[strip][block][e] = 0.f;
}

// One lane of a warp: what it copies next, and what it multiplies next. Lanes whose rows of x or W are not there
// take the last ones: what they give is not stored.
struct Lane {
    const uint4* weights;
    const u32* scales;
    const Fp16* x[kBlocks];
    long long to_strip[kStrips];  // groups from the first strip of the warp
    int count, uncopied;          // groups that the warp takes, and those that are not on their way yet
    u32 ring, lane;               // the ring's address in shared memory
    u32 written, read;            // stages, as bytes from the first one

    __device__ __forceinline__ Lane(SharedStorage& shared, const Fp16* all_x, const uint4* weight_tiles,
                                    const u32* scale_tiles, int rows, int columns, int depth)
        : written(0), read(0) {
        const int warp = threadIdx.x / 32, part = blockIdx.y * kDepthWarps + warp / kSideWarps;
        const int strips = (columns + 15) / 16, groups = depth / kGroup;
        const int strip = min((blockIdx.x * kSideWarps + warp % kSideWarps) * kStrips, strips - 1);
        const int first = static_cast<int>(static_cast<long long>(groups) * part / (kSplit * kDepthWarps));
        lane = threadIdx.x % 32;
        ring = shared_address(shared.ring[warp]);
        count = static_cast<int>(static_cast<long long>(groups) * (part + 1) / (kSplit * kDepthWarps)) - first;
        uncopied = count;
        const long long group = static_cast<long long>(strip) * groups + first;
        weights = weight_tiles + group * (kTiles * 32) + lane;
        scales = scale_tiles + (group * 8 + lane / 4) * (kMetaBytes / 4);
#pragma unroll
        for (int i = 0; i < kStrips; ++i) to_strip[i] = static_cast<long long>(min(i, strips - 1 - strip)) * groups;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
            x[block] = all_x + static_cast<long long>(min(8 * block + lane / 4, rows - 1)) * depth + first * kGroup +
                       16 * (lane % 4);
    }

    static __device__ __forceinline__ u32 next(u32 stage) {
        return stage == (kStages - 1) * sizeof(Stage) ? 0 : stage + sizeof(Stage);
    }

    // Starts copying the next group. Commits even if there is none, so that waits can count.
    __device__ __forceinline__ void copy() {
        if (uncopied > 0) {
            const u32 pieces = ring + written + 16 * lane, metas = ring + written + kMetaBytes * lane;
#pragma unroll
            for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
                for (int tile = 0; tile < kTiles; ++tile)
                    cp_async_16(pieces + (strip * kTiles + tile) * 512,
                                weights + to_strip[strip] * (kTiles * 32) + tile * 32, true);
                cp_async_few<kMetaBytes>(metas + kScales + strip * (32 * kMetaBytes),
                                         scales + to_strip[strip] * (8 * (kMetaBytes / 4)), true);
            }
            weights += kTiles * 32, scales += 8 * (kMetaBytes / 4);
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
                for (int part = 0; part < 2 * kTiles; ++part)
                    cp_async_16(pieces + kX + (block * 2 * kTiles + part) * 512,
                                x[block] + part / 2 * 64 + part % 2 * 8, true);
                x[block] += kGroup;
            }
            written = next(written);
            --uncopied;
        }
        cp_async_commit();
    }

    // 8 elements of x that the lane multiplies: half of its 16 of a tile of 64.
    __device__ __forceinline__ uint4 eight_of_x(int block, int tile, int half) const {
        return load_shared_16(ring + read + 16 * lane + kX + ((block * kTiles + tile) * 2 + half) * 512);
    }

    // What rows lane / 4 and lane / 4 + 8 of a strip have of a group: scales and zero points, twice each.
    __device__ __forceinline__ void read_scales(int strip, u32 (&scales)[2], ZeroPoint (&zeros)[2]) const {
        const u32 from = ring + read + kMetaBytes * lane + kScales + strip * (32 * kMetaBytes);
        const u32 both = load_shared_4(from);
        scales[0] = __byte_perm(both, 0u, 0x1010), scales[1] = __byte_perm(both, 0u, 0x3232);
        if constexpr (kZeros) {
            const u32 points = load_shared_4(from + 4);
            zeros[0] = ZeroPoint::of(__byte_perm(points, 0u, 0x1010));
            zeros[1] = ZeroPoint::of(__byte_perm(points, 0u, 0x3232));
        } else {
            zeros[0] = zeros[1] = ZeroPoint::eight();
        }
    }

    // Adds the products of the next group, which has come.
    __device__ __forceinline__ void multiply(Accumulator& sums) {
        u32 scales[kStrips][2];
        ZeroPoint zeros[kStrips][2];
#pragma unroll
        for (int strip = 0; strip < kStrips; ++strip) read_scales(strip, scales[strip], zeros[strip]);
        Accumulator of_group;
        if constexpr (kScaleSums) clear(of_group);
        Accumulator& target = kScaleSums ? of_group : sums;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            uint4 words[kStrips];
#pragma unroll
            for (int strip = 0; strip < kStrips; ++strip)
                words[strip] = load_shared_16(ring + read + 16 * lane + (strip * kTiles + tile) * 512);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                u32 early[kStrips][4], late[kStrips][4];
#pragma unroll
                for (int strip = 0; strip < kStrips; ++strip) {
                    const uint4& word = words[strip];
                    weights_of(early[strip], half == 0 ? word.x : word.z, scales[strip], zeros[strip]);
                    weights_of(late[strip], half == 0 ? word.y : word.w, scales[strip], zeros[strip]);
                }
#pragma unroll
                for (int block = 0; block < kBlocks; ++block) {
                    const uint4 x8 = eight_of_x(block, tile, half);
#pragma unroll
                    for (int strip = 0; strip < kStrips; ++strip) {
                        mma_m16n8k16_f16(target[strip][block], early[strip], x8.x, x8.y);
                        mma_m16n8k16_f16(target[strip][block], late[strip], x8.z, x8.w);
                    }
                }
            }
        }
        read = next(read);
        if constexpr (kScaleSums) {
#pragma unroll
            for (int strip = 0; strip < kStrips; ++strip)
#pragma unroll
                for (int block = 0; block < kBlocks; ++block)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sums[strip][block][e] += Fp16::low(scales[strip][e / 2]) * of_group[strip][block][e];
        }
    }

    // The lane's weights of 16 elements of K from their codes.
    static __device__ __forceinline__ void weights_of(u32 (&a)[4], u32 codes, const u32 (&scales)[2],
                                                      const ZeroPoint (&zeros)[2]) {
        codes_as_operand(a, codes, zeros[0], zeros[1]);
        if constexpr (!kScaleSums) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = mul_f16x2(a[i], scales[i % 2]);
        }
    }
};

__device__ __forceinline__ void product(SharedStorage& shared, Lane at, Fp16* y, float* partials, u32* tickets,
                                        int rows, int columns) {
    Accumulator sums;
    clear(sums);
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) at.copy();
    for (int left = at.count; left > 0; --left) {
        cp_async_wait<kStages - 2>();
        at.copy();  // where the group before lay, which the lane has read
        at.multiply(sums);
    }
    cp_async_wait<0>();
    __syncthreads();  // all rings are read
    const int warp = threadIdx.x / 32;
    shared.sums.leave(warp / kSideWarps, warp % kSideWarps * (16 * kStrips), sums);
    __syncthreads();
    const int first_column = blockIdx.x * kColumns;
    const auto store = [&](int row, int column, float sum) {
        const long long to = first_column + column;
        if (to < columns) y[static_cast<long long>(row) * columns + to].bits = static_cast<u16>(cvt_f16x2(sum, 0.f));
    };
    join<kSplit, kThreads>(shared.sums, rows, blockIdx.x, blockIdx.y, partials, tickets, shared.last, store);
}

}  // namespace evo

// x: (rows, depth); weight_tiles: strips of 16 rows of W, in each its groups, in each two times 16 bytes a lane;
// scale_tiles: the same strips and groups, in each what 8 lanes need; y: (rows, columns). Grid: tiles of columns x
// parts of K. With kSplit > 1 `partials` and `tickets` have room for all tiles.
extern "C" __global__ void __launch_bounds__(evo::kThreads, evo::kMinCtas)
w4a16(const evo::Fp16* x, const uint4* weight_tiles, const evo::u32* scale_tiles, evo::Fp16* y,
      float* partials, evo::u32* tickets,
      int rows, int columns, int depth) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    using namespace evo;
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(shared_memory);
    product(shared, Lane(shared, x, weight_tiles, scale_tiles, rows, columns, depth), y, partials, tickets, rows,
            columns);
}

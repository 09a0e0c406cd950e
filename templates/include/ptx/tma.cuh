// The tensor memory accelerator: one instruction copies a box of a tensor between global and shared memory
// (sm_90). One function per PTX instruction. What a box has outside the tensor reads as zero and is not written.
#pragma once
#include "ptx/mbarrier.cuh"

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

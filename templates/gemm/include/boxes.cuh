// Copies of boxes of a batch of matrices, by tensor maps of three dimensions: column, row, matrix (sm_90). One
// function per PTX instruction. What a box has outside of the tensor reads as zero and is not written.
#pragma once
#include "ptx/tma.cuh"

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

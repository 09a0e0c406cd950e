// What one warp holds of m16n8k16's operands, and the two matrix products of attention on them.
// Rows of a warp come in kBlocks blocks of 16. In an accumulator, lane l holds row l/4 (elements 0, 1) and
// row l/4 + 8 (elements 2, 3), columns 2 (l%4) and 2 (l%4) + 1.
#pragma once
#include "memory/tile.cuh"

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

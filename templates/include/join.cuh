// Joining what groups of warps of one CTA found over different keys of the same query rows, through shared
// memory: each group ends up with the final values of its own share of the columns.
#pragma once
#include "softmax.cuh"

namespace evo {

// kGroups groups of kWarps warps with kBlocks blocks of 16 rows and kColumns columns of 8 values each.
template <int kGroups, int kWarps, int kBlocks, int kColumns>
struct alignas(16) Exchange {
    static_assert(kColumns % kGroups == 0, "each group owns the same share of the columns");
    static constexpr int kShare = kColumns / kGroups;
    static constexpr int kRows = kWarps * kBlocks * 16;

    // [receiver][sender among the others]: a lane's 4 values are 16 bytes next to its neighbour's
    float4 partial[kGroups][kGroups - 1][kWarps][kBlocks][kShare][32];
    float2 statistics[kGroups][kRows];  // maximum and sum
};

// `share` = the group's columns of the joint, normalised output. Every thread of the CTA takes part; the
// caller has made sure that nobody uses the memory of `exchange` any more.
template <bool kLazy, int kGroups, int kWarps, int kBlocks, int kColumns>
__device__ __forceinline__ void join_groups(Exchange<kGroups, kWarps, kBlocks, kColumns>& exchange,
                                            float (&share)[kBlocks][kColumns / kGroups][4],
                                            const float (&out)[kBlocks][kColumns][4],
                                            const OnlineSoftmax<kBlocks, kLazy>& softmax, float scale, int group,
                                            int warp, int lane) {
    constexpr int kShare = kColumns / kGroups;
    // Constant indices only (a run-time index would put the accumulators into local memory).
#pragma unroll
    for (int receiver = 0; receiver < kGroups; ++receiver)
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int j = 0; j < kShare; ++j) {
                const float(&x)[4] = out[i][receiver * kShare + j];
                if (receiver == group) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) share[i][j][e] = x[e];
                } else {
                    const int sender = (group - receiver - 1 + kGroups) % kGroups;
                    exchange.partial[receiver][sender][warp][i][j][lane] = make_float4(x[0], x[1], x[2], x[3]);
                }
            }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if ((lane & 3) == 0)
                exchange.statistics[group][(warp * kBlocks + i) * 16 + 8 * half + (lane >> 2)] =
                    make_float2(softmax.maximum[i][half], softmax.sum[i][half]);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        float weight[kGroups][2];  // by distance from this group: 0 is this group, s + 1 the s-th sender
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (warp * kBlocks + i) * 16 + 8 * half + (lane >> 2);
            float2 found[kGroups];
            float maximum = kNoMaximum, sum = 0.f;
#pragma unroll
            for (int s = 0; s < kGroups; ++s) {
                found[s] = exchange.statistics[(group + s) % kGroups][row];
                maximum = fmaxf(maximum, found[s].x);
            }
#pragma unroll
            for (int s = 0; s < kGroups; ++s) {
                weight[s][half] = ex2((found[s].x - maximum) * scale);
                sum = fmaf(found[s].y, weight[s][half], sum);
            }
            const float inverse = rcp(sum);
#pragma unroll
            for (int s = 0; s < kGroups; ++s) weight[s][half] *= inverse;
        }
#pragma unroll
        for (int j = 0; j < kShare; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) share[i][j][e] *= weight[0][e / 2];
#pragma unroll
            for (int s = 0; s < kGroups - 1; ++s) {
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

// Joining what groups of warps found over different keys of the same query rows, through the shared memory of
// their CTAs: each group ends up with the final values of its own share of the columns.
#pragma once
#include "softmax.cuh"

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

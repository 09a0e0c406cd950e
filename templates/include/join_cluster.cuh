// Joining what several warpgroups, of one CTA or of a cluster, found over different keys of the same 64 query
// rows. Every part (warpgroup) ends up with the final values of its share of each thread's accumulators: one
// of the two rows, and a run of column blocks.
#pragma once
#include "cluster.cuh"
#include "warpgroup.cuh"

namespace evo {

// kCluster CTAs of kGroups parts each; kRowGroups sets of 64 rows side by side. kAsync: CTAs send with st.async,
// counted by an mbarrier, else with ordinary stores and the cluster's barrier.
template <int kD, int kCluster, int kGroups, int kRowGroups, bool kAsync>
struct Join {
    static constexpr int kParts = kCluster * kGroups;
    static constexpr int kBlocks = 2 * (kD / 8) / kParts;  // column blocks of a share
    static constexpr int kVectors = kBlocks / 2;
    static_assert(kParts > 1 && kVectors > 0 && kBlocks * kParts == 2 * (kD / 8), "shares are whole vectors");

    // [row group][receiving group][sender among the others]: a lane's vector is 16 bytes next to its neighbour's
    struct alignas(16) Storage {
        float4 partial[kRowGroups][kGroups][kParts - 1][kVectors][kGroupThreads];
        float2 statistics[kRowGroups][kGroups][kParts - 1][kGroupThreads];
    };
    static constexpr u32 kReceivedBytes = sizeof(Storage);

    Storage& storage;
    u32 full;  // mbarrier that expects kReceivedBytes
    int row_group, group, rank, thread;

    __device__ __forceinline__ int part() const { return rank * kGroups + group; }
    // Which of the thread's two rows, and which column block first, the share is.
    __device__ __forceinline__ int half() const { return part() & 1; }
    __device__ __forceinline__ int first_block() const { return (part() >> 1) * kBlocks; }

    // Maximum and finished sum of each row, to all the others.
    __device__ __forceinline__ void send_statistics(const float (&maximum)[2], const float (&sum)[2]) const {
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver != part())
                send(&storage.statistics[row_group][receiver % kGroups][slot(receiver)][thread],
                     make_float2(maximum[receiver & 1], sum[receiver & 1]), receiver / kGroups);
    }

    // The others' shares of `out`, to them.
    __device__ __forceinline__ void send_shares(const float (&out)[kD / 8][4]) const {
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver != part()) {
                const int half = 2 * (receiver & 1);
#pragma unroll
                for (int i = 0; i < kVectors; ++i) {
                    const int j = (receiver >> 1) * kBlocks + 2 * i;
                    send(&storage.partial[row_group][receiver % kGroups][slot(receiver)][i][thread],
                         make_float4(out[j][half], out[j][half + 1], out[j + 1][half], out[j + 1][half + 1]),
                         receiver / kGroups);
                }
            }
    }

    // Until everybody's shares are here. `barrier`: a named one for all parts of this CTA.
    __device__ __forceinline__ void await(u32 barrier) const {
        if constexpr (kCluster == 1) {
            barrier_sync(barrier, kRowGroups * kGroups * kGroupThreads);
        } else if constexpr (kAsync) {
            mbarrier_wait_cluster(full, 0);
        } else {
            cluster_arrive();
            cluster_wait();
        }
    }

    // share = this part's columns of the joint, normalised output.
    __device__ __forceinline__ void receive(float (&share)[kBlocks][2], const float (&out)[kD / 8][4],
                                            const float (&maximum)[2], const float (&sum)[2], float scale) const {
        const int own = half();
        float2 others[kParts - 1];
        float top = own ? maximum[1] : maximum[0];
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i) {
            others[i] = storage.statistics[row_group][group][i][thread];
            top = fmaxf(top, others[i].x);
        }
        float weight = ex2(((own ? maximum[1] : maximum[0]) - top) * scale);
        float total = weight * (own ? sum[1] : sum[0]);
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver == part()) {
#pragma unroll
                for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        share[j][e] = weight * out[(receiver >> 1) * kBlocks + j][2 * (receiver & 1) + e];
            }
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i) {
            weight = ex2((others[i].x - top) * scale);
            total = fmaf(weight, others[i].y, total);
#pragma unroll
            for (int j = 0; j < kVectors; ++j) {
                const float4 x = storage.partial[row_group][group][i][j][thread];
                share[2 * j][0] = fmaf(weight, x.x, share[2 * j][0]);
                share[2 * j][1] = fmaf(weight, x.y, share[2 * j][1]);
                share[2 * j + 1][0] = fmaf(weight, x.z, share[2 * j + 1][0]);
                share[2 * j + 1][1] = fmaf(weight, x.w, share[2 * j + 1][1]);
            }
        }
        const float inverse = rcp(total);
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) share[j][0] *= inverse, share[j][1] *= inverse;
    }

private:
    // Where this part's message lies among those that `receiver` gets.
    __device__ __forceinline__ int slot(int receiver) const { return (part() - receiver - 1 + kParts) % kParts; }

    template <class Vector>
    __device__ __forceinline__ void send(Vector* to, Vector x, u32 receiving_rank) const {
        if constexpr (kCluster == 1) {
            *to = x;
        } else {
            const u32 remote = map_to_rank(shared_address(to), receiving_rank);
            if constexpr (kAsync) store_async(remote, x, map_to_rank(full, receiving_rank));
            else store_cluster(remote, x);
        }
    }
};

}  // namespace evo

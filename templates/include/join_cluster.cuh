// Joining what several warpgroups, of one CTA or of a cluster, found over different keys of the same 64 query
// rows. Every part (warpgroup) ends up with the final values of its share of each thread's accumulators: one
// of the two rows, and a run of column blocks.
#pragma once
#include "cluster.cuh"
#include "warpgroup.cuh"

namespace evo {

// kCluster CTAs of kGroups parts each; kRowGroups sets of 64 rows side by side. kByBytes: CTAs send with st.async,
// counted by mbarriers, else with ordinary stores and the cluster's barrier.
template <int kD, int kCluster, int kGroups, int kRowGroups, bool kByBytes>
struct Join {
    static constexpr bool kAsync = kByBytes && kCluster > 1;
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

    static constexpr u32 kStatisticsBytes = sizeof(Storage::statistics);
    static constexpr u32 kSharesBytes = sizeof(Storage::partial);

    Storage& storage;
    u32 statistics_full, shares_full;  // mbarriers that expect kStatisticsBytes and kSharesBytes; used if kAsync
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
                     make_float2(maximum[receiver & 1], sum[receiver & 1]), receiver / kGroups, statistics_full);
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
                         receiver / kGroups, shares_full);
                }
            }
    }

    // share = this part's columns of the joint, normalised output, once the others' are here. `barrier`: a named
    // one for all parts of this CTA; `parity`: of the mbarriers' phase.
    __device__ __forceinline__ void receive(float (&share)[kBlocks][2], const float (&out)[kD / 8][4],
                                            const float (&maximum)[2], const float (&sum)[2], float scale,
                                            u32 barrier, u32 parity = 0) const {
        if constexpr (kAsync) mbarrier_wait_cluster(statistics_full, parity);  // these left first: weigh while shares fly
        else await(barrier);
        float weights[kParts];  // one's own last
        weigh(weights, half() ? maximum[1] : maximum[0], half() ? sum[1] : sum[0], scale);
        // Every part's share is looked at: branches would be merged to one with a run-time index, in local memory.
#pragma unroll
        for (int j = 0; j < kBlocks; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float own = out[j][e];
#pragma unroll
                for (int receiver = 1; receiver < kParts; ++receiver) {
                    const float x = out[(receiver >> 1) * kBlocks + j][2 * (receiver & 1) + e];
                    own = receiver == part() ? x : own;
                }
                share[j][e] = weights[kParts - 1] * own;
            }
        if constexpr (kAsync) mbarrier_wait_cluster(shares_full, parity);
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i)
#pragma unroll
            for (int j = 0; j < kVectors; ++j) {
                const float4 x = storage.partial[row_group][group][i][j][thread];
                share[2 * j][0] = fmaf(weights[i], x.x, share[2 * j][0]);
                share[2 * j][1] = fmaf(weights[i], x.y, share[2 * j][1]);
                share[2 * j + 1][0] = fmaf(weights[i], x.z, share[2 * j + 1][0]);
                share[2 * j + 1][1] = fmaf(weights[i], x.w, share[2 * j + 1][1]);
            }
    }

    // Until all parts have come here; what they sent before is then seen. Not for kAsync.
    __device__ __forceinline__ void await(u32 barrier) const {
        if constexpr (kCluster == 1) {
            barrier_sync(barrier, kRowGroups * kGroups * kGroupThreads);
        } else {
            cluster_arrive();
            cluster_wait();
        }
    }

private:
    // What each part's values count in the joint result: the others by slot, then one's own.
    __device__ __forceinline__ void weigh(float (&weights)[kParts], float maximum, float sum, float scale) const {
        float maxima[kParts], sums[kParts], top = maximum, total = 0.f;
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i) {
            const float2 other = storage.statistics[row_group][group][i][thread];
            maxima[i] = other.x;
            sums[i] = other.y;
            top = fmaxf(top, other.x);
        }
        maxima[kParts - 1] = maximum;
        sums[kParts - 1] = sum;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            weights[i] = ex2((maxima[i] - top) * scale);
            total = fmaf(weights[i], sums[i], total);
        }
        const float inverse = rcp(total);
#pragma unroll
        for (int i = 0; i < kParts; ++i) weights[i] *= inverse;
    }

    // Where this part's message lies among those that `receiver` gets.
    __device__ __forceinline__ int slot(int receiver) const { return (part() - receiver - 1 + kParts) % kParts; }

    template <class Vector>
    __device__ __forceinline__ void send(Vector* to, Vector x, u32 receiving_rank, u32 full) const {
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

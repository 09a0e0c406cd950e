// Joining what several warpgroups, of one CTA or of a cluster, found over different keys of the same 64 query
// rows. Every part (warpgroup) ends up with the final values of its share of each thread's accumulators: one
// of the two rows, and a run of column blocks.
#pragma once
#include "ptx/cluster.cuh"
#include "warpgroup.cuh"

namespace evo {

template <bool kWide>
struct VectorOf {
    using Type = float2;
};
template <>
struct VectorOf<true> {
    using Type = float4;
};

// kCluster CTAs of kGroups parts each; kRowGroups sets of 64 rows side by side. kByBytes: CTAs send with st.async,
// counted by mbarriers, else with ordinary stores and the cluster's barrier. Shares travel as Message: float, or a
// 16-bit type, for which they are divided by their part's own sums first, so that they are no larger than values.
template <int kD, int kCluster, int kGroups, int kRowGroups, bool kByBytes, class Message = float>
struct Join {
    static constexpr bool kAsync = kByBytes && kCluster > 1;
    static constexpr int kParts = kCluster * kGroups;
    // Two CTAs, of which each keeps one of a thread's two rows: selected by values, where branches would cost more.
    static constexpr bool kPair = kCluster == 2 && kGroups == 1;
    static constexpr int kBlocks = 2 * (kD / 8) / kParts;  // column blocks of a share
    static constexpr bool kPacked = sizeof(Message) == 2;
    static constexpr int kWords = kPacked ? kBlocks : 2 * kBlocks;  // 32-bit words of a lane's share
    using Vector = typename VectorOf<kWords % 4 == 0>::Type;
    static constexpr int kVectorWords = sizeof(Vector) / 4, kVectors = kWords / kVectorWords;
    static_assert(kParts > 1 && kBlocks > 1 && kBlocks * kParts == 2 * (kD / 8), "shares are whole vectors");

    // [row group][receiving group][sender among the others]: a lane's vector is next to its neighbour's. Statistics
    // are those of a lane's share, written by one of the four lanes that have the same row.
    struct alignas(16) Storage {
        Vector partial[kRowGroups][kGroups][kParts - 1][kVectors][kGroupThreads];
        float2 statistics[kRowGroups][kGroups][kParts - 1][kGroupThreads];
    };
    static constexpr u32 kReceivedBytes = sizeof(Storage);

    static constexpr u32 kStatisticsBytes = sizeof(Storage::statistics) / 4;
    static constexpr u32 kSharesBytes = sizeof(Storage::partial);

    Storage& storage;
    // Used if kAsync: mbarriers that expect kStatisticsBytes and kSharesBytes.
    u32 statistics_full, shares_full;
    int row_group, group, rank, thread;

    __device__ __forceinline__ int part() const { return rank * kGroups + group; }
    // Which of the thread's two rows, and which column block first, the share is.
    __device__ __forceinline__ int half() const { return part() & 1; }
    __device__ __forceinline__ int first_block() const { return (part() >> 1) * kBlocks; }

    // Maximum and finished sum of each row, to all the others.
    __device__ __forceinline__ void send_statistics(const float (&maximum)[2], const float (&sum)[2]) const {
        if constexpr (kPair) {
            if (thread % 4 == 0)
                send(&storage.statistics[row_group][0][0][thread],
                     rank ? make_float2(maximum[0], sum[0]) : make_float2(maximum[1], sum[1]), 1 - rank, statistics_full);
            return;
        }
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver != part() && thread % 4 == 0)
                send(&storage.statistics[row_group][receiver % kGroups][slot(receiver)][thread],
                     make_float2(maximum[receiver & 1], sum[receiver & 1]), receiver / kGroups, statistics_full);
    }

    // The others' shares of `out`, to them. `sum`: as sent.
    __device__ __forceinline__ void send_shares(const float (&out)[kD / 8][4], const float (&sum)[2]) const {
        if constexpr (kPair) {
            const float total = rank ? sum[0] : sum[1];
            const float inverse = kPacked && total > 0.f ? rcp(total) : 0.f;
            float words[kWords];
#pragma unroll
            for (int j = 0; j < kBlocks; ++j) {
                const float x = rank ? out[j][0] : out[j][2], y = rank ? out[j][1] : out[j][3];
                if constexpr (kPacked) words[j] = __uint_as_float(Message::pack(x * inverse, y * inverse));
                else words[2 * j] = x, words[2 * j + 1] = y;
            }
#pragma unroll
            for (int i = 0; i < kVectors; ++i)
                send(&storage.partial[row_group][0][0][i][thread], vector(words + i * kVectorWords), 1 - rank, shares_full);
            return;
        }
#pragma unroll
        for (int receiver = 0; receiver < kParts; ++receiver)
            if (receiver != part()) {
                const int half = receiver & 1;
                const float inverse = kPacked && sum[half] > 0.f ? rcp(sum[half]) : 0.f;
                float words[kWords];
#pragma unroll
                for (int i = 0; i < kWords; ++i) {
                    const float(&block)[4] = out[(receiver >> 1) * kBlocks + (kPacked ? i : i / 2)];
                    if constexpr (kPacked)
                        words[i] = __uint_as_float(Message::pack(block[2 * half] * inverse, block[2 * half + 1] * inverse));
                    else words[i] = block[2 * half + (i & 1)];
                }
#pragma unroll
                for (int i = 0; i < kVectors; ++i)
                    send(&storage.partial[row_group][receiver % kGroups][slot(receiver)][i][thread],
                         vector(words + i * kVectorWords), receiver / kGroups, shares_full);
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
        if constexpr (kAsync) mbarrier_wait_cluster(known_after(shares_full, word_of(weights[0])), parity);
#pragma unroll
        for (int i = 0; i < kParts - 1; ++i)
#pragma unroll
            for (int j = 0; j < kVectors; ++j) {
                float words[kVectorWords];
                spread(words, storage.partial[row_group][group][i][j][thread]);
#pragma unroll
                for (int k = 0; k < kVectorWords; ++k) {
                    const int word = j * kVectorWords + k;
                    if constexpr (kPacked) {
                        const u32 pair = __float_as_uint(words[k]);
                        share[word][0] = fmaf(weights[i], Message::low(pair), share[word][0]);
                        share[word][1] = fmaf(weights[i], Message::high(pair), share[word][1]);
                    } else {
                        share[word / 2][word & 1] = fmaf(weights[i], words[k], share[word / 2][word & 1]);
                    }
                }
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
            const float2 other = storage.statistics[row_group][group][i][thread & ~3];
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
        for (int i = 0; i < kParts; ++i) weights[i] *= kPacked && i < kParts - 1 ? inverse * sums[i] : inverse;
    }

    static __device__ __forceinline__ Vector vector(const float* words) {
        if constexpr (kVectorWords == 4) return make_float4(words[0], words[1], words[2], words[3]);
        else return make_float2(words[0], words[1]);
    }
    static __device__ __forceinline__ void spread(float (&words)[kVectorWords], Vector x) {
        words[0] = x.x, words[1] = x.y;
        if constexpr (kVectorWords == 4) words[2] = x.z, words[3] = x.w;
    }

    // Where this part's message lies among those that `receiver` gets.
    __device__ __forceinline__ int slot(int receiver) const { return (part() - receiver - 1 + kParts) % kParts; }

    template <class Sent>
    __device__ __forceinline__ void send(Sent* to, Sent x, u32 receiving_rank, u32 full) const {
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

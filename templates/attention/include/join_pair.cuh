// Joining what two CTAs of a cluster found over different keys of the same query rows. Each sends the first half of its
// accumulators' columns and keeps the second, of both of a thread's rows: nothing is selected at run time. Values lie
// in shared memory so that this is right for both.
#pragma once
#include "ptx/cluster.cuh"
#include "ptx/half.cuh"
#include "warpgroup.cuh"

namespace evo {

// Shares travel as Message: float, or a 16-bit type, for which they are divided by their part's own sums first, so
// that they are no larger than values. Bytes are counted by two mbarriers, which expect kStatisticsBytes and kSharesBytes.
// kWide: see store_row; lanes swap blocks while shares travel, and read those of the other CTA as if they had swapped.
template <int kD, class Message, bool kWide>
struct PairJoin {
    static constexpr int kBlocks = kD / 16;  // column blocks of a half
    static constexpr bool kSwapped = kWide && kBlocks % 4 == 0;
    static constexpr bool kPacked = sizeof(Message) == 2;
    static constexpr int kPairWords = kPacked ? 1 : 2;
    static constexpr int kWords = 2 * kPairWords * kBlocks;  // 32-bit words that a lane sends
    static_assert(kWords % 4 == 0, "shares are whole vectors");
    using Output = float[kD / 8][4];

    // A lane's vector is next to its neighbour's. The four lanes of a row have the same statistics: maximum and sum of
    // their first row, then of the second.
    struct alignas(16) Storage {
        float4 partial[kWords / 4][kGroupThreads];
        float4 statistics[kGroupThreads / 4];
    };
    static constexpr u32 kStatisticsBytes = sizeof(Storage::statistics), kSharesBytes = sizeof(Storage::partial);

    Storage& storage;
    u32 statistics_full, shares_full;
    int rank, thread;

    // Maxima and finished sums, to the other CTA.
    __device__ __forceinline__ void send_statistics(const float (&maximum)[2], const float (&sum)[2]) const {
        if (thread % 4 == 0)
            send(&storage.statistics[thread / 4], make_float4(maximum[0], sum[0], maximum[1], sum[1]), statistics_full);
    }

    // The half that the other CTA keeps, to it. `sum`: as sent.
    __device__ __forceinline__ void send_half(const Output& out, const float (&sum)[2]) const {
        float words[kWords];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float inverse = kPacked && sum[half] > 0.f ? rcp(sum[half]) : 0.f;
#pragma unroll
            for (int j = 0; j < kBlocks; ++j) {
                const float x = out[j][2 * half], y = out[j][2 * half + 1];
                if constexpr (kPacked) words[half * kBlocks + j] = __uint_as_float(Message::pack(x * inverse, y * inverse));
                else words[2 * (half * kBlocks + j)] = x, words[2 * (half * kBlocks + j) + 1] = y;
            }
        }
#pragma unroll
        for (int i = 0; i < kWords; i += 4)
            send(&storage.partial[i / 4][place(thread)],
                 make_float4(words[i], words[i + 1], words[i + 2], words[i + 3]), shares_full);
    }

    // share = this CTA's half of the joint, normalised output, once the other's is here: of each of a thread's two rows
    // pairs of columns, swapped if kSwapped. `before`: what else is computed before it waits, see known_after.
    __device__ __forceinline__ void receive(float (&share)[2][kBlocks][2], const Output& out, const float (&maximum)[2],
                                            const float (&sum)[2], float scale, u32 before) const {
        float own[2][2][kBlocks], others[2][kPairWords][kBlocks], their_weight[2];
        u32 from[4];  // of this thread's own vectors, or its word of those of its row's four lanes
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int word = kSwapped ? kPairWords * (thread & 3) : 0, sender = kSwapped ? (thread & ~3) + i : thread;
            before |= from[i] = shared_address(&storage.partial[word / 4][place(sender)]) + 4 * (word % 4);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
#pragma unroll
                for (int j = 0; j < kBlocks; ++j) own[half][e][j] = out[kBlocks + j][2 * half + e];
                if constexpr (kSwapped) swap_blocks(own[half][e], thread);
            }
        mbarrier_wait_cluster(statistics_full, 0);  // these left first: weigh while shares fly
        const float4 statistics = storage.statistics[thread / 4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float other_maximum = half ? statistics.z : statistics.x;
            const float other_sum = half ? statistics.w : statistics.y;
            const float top = fmaxf(maximum[half], other_maximum);
            const float mine = ex2((maximum[half] - top) * scale), theirs = ex2((other_maximum - top) * scale);
            const float inverse = rcp(fmaf(mine, sum[half], theirs * other_sum));
            const float my_weight = mine * inverse;
            their_weight[half] = theirs * (kPacked ? inverse * other_sum : inverse);
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    share[half][j][e] = my_weight * own[half][e][j];
                    before |= word_of(share[half][j][e]);
                }
            before |= word_of(their_weight[half]);
        }
        mbarrier_wait_cluster(known_after(shares_full, before), 0);
        read(others, from);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float x;
                    if constexpr (kPacked) {
                        const u32 pair = __float_as_uint(others[half][0][j]);
                        x = e == 0 ? Message::low(pair) : Message::high(pair);
                    } else {
                        x = others[half][e][j];
                    }
                    share[half][j][e] = fmaf(their_weight[half], x, share[half][j][e]);
                }
    }

private:
    // Where a thread's vectors lie, so that the lanes of a warp read single words of each other's from all banks.
    static __device__ __forceinline__ int place(int thread) { return thread ^ (thread >> 3 & 3); }

    // What the other CTA sent of the pairs that this thread has.
    static __device__ __forceinline__ void read(float (&others)[2][kPairWords][kBlocks], const u32 (&from)[4]) {
        constexpr int kRowBytes = sizeof(Storage::partial[0]);
        u32 words[kWords];
        if constexpr (!kSwapped) {
#pragma unroll
            for (int i = 0; i < kWords; i += 4) {
                const uint4 x = load_shared_16(from[0] + i / 4 * kRowBytes);
                words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < kPairWords; ++e) {
                    const int word = kPairWords * (half * kBlocks + j) + e;
                    if constexpr (kSwapped) {
                        const int row = kPairWords * (half * kBlocks + (j & ~3)) / 4;
                        words[word] = load_shared_4(from[j & 3] + row * kRowBytes + 4 * e);
                    }
                    others[half][e][j] = __uint_as_float(words[word]);
                }
    }

    __device__ __forceinline__ void send(float4* to, float4 x, u32 full) const {
        store_async(map_to_rank(shared_address(to), 1 - rank), x, map_to_rank(full, 1 - rank));
    }
};

}  // namespace evo

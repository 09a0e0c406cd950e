// Joining what two CTAs of a cluster found over different keys of the same query rows. Each sends the first half of its
// accumulators' columns and keeps the second, of both of a thread's rows: nothing is selected at run time. Values lie
// in shared memory so that this is right for both.
#pragma once
#include "ptx/cluster.cuh"
#include "warpgroup.cuh"

namespace evo {

// Shares travel as Message: float, or a 16-bit type, for which they are divided by their part's own sums first, so
// that they are no larger than values. Bytes are counted by one mbarrier, which expects kReceivedBytes.
template <int kD, class Message>
struct PairJoin {
    static constexpr int kBlocks = kD / 16;  // column blocks of a half
    static constexpr bool kPacked = sizeof(Message) == 2;
    static constexpr int kWords = (kPacked ? 2 : 4) * kBlocks;  // 32-bit words that a lane sends
    static_assert(kWords % 4 == 0, "shares are whole vectors");
    using Output = float[kD / 8][4];

    // A lane's vector is next to its neighbour's. The four lanes of a row have the same statistics: maximum and sum of
    // their first row, then of the second.
    struct alignas(16) Storage {
        float4 partial[kWords / 4][kGroupThreads];
        float4 statistics[kGroupThreads / 4];
    };
    static constexpr u32 kReceivedBytes = sizeof(Storage);

    Storage& storage;
    u32 full;
    int rank, thread;

    // Maxima and finished sums, to the other CTA.
    __device__ __forceinline__ void send_statistics(const float (&maximum)[2], const float (&sum)[2]) const {
        if (thread % 4 == 0)
            send(&storage.statistics[thread / 4], make_float4(maximum[0], sum[0], maximum[1], sum[1]));
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
            send(&storage.partial[i / 4][thread],
                 make_float4(words[i], words[i + 1], words[i + 2], words[i + 3]));
    }

    // share = this CTA's half of the joint, normalised output, once the other's is here.
    __device__ __forceinline__ void receive(float (&share)[2][kBlocks][2], const Output& out, const float (&maximum)[2],
                                            const float (&sum)[2], float scale) const {
        mbarrier_wait_cluster(full, 0);
        const float4 others = storage.statistics[thread / 4];
        float words[kWords];
#pragma unroll
        for (int i = 0; i < kWords; i += 4) {
            const float4 x = storage.partial[i / 4][thread];
            words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float other_maximum = half ? others.z : others.x, other_sum = half ? others.w : others.y;
            const float top = fmaxf(maximum[half], other_maximum);
            const float mine = ex2((maximum[half] - top) * scale), theirs = ex2((other_maximum - top) * scale);
            const float inverse = rcp(fmaf(mine, sum[half], theirs * other_sum));
            const float my_weight = mine * inverse;
            const float their_weight = theirs * (kPacked ? inverse * other_sum : inverse);
#pragma unroll
            for (int j = 0; j < kBlocks; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float x;
                    if constexpr (kPacked) {
                        const u32 pair = __float_as_uint(words[half * kBlocks + j]);
                        x = e == 0 ? Message::low(pair) : Message::high(pair);
                    } else {
                        x = words[2 * (half * kBlocks + j) + e];
                    }
                    share[half][j][e] = fmaf(their_weight, x, my_weight * out[kBlocks + j][2 * half + e]);
                }
        }
    }

private:
    __device__ __forceinline__ void send(float4* to, float4 x) const {
        store_async(map_to_rank(shared_address(to), 1 - rank), x, map_to_rank(full, 1 - rank));
    }
};

}  // namespace evo

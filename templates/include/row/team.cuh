// The threads that share a row: some of a CTA, all of it, or all CTAs of a cluster. What they sum up together.
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// What the warps of a row tell each other: two turns of one state a warp, so that one barrier a sum is enough.
// A warp that writes a turn again has passed a barrier that all pass only when they have read that turn.
template <class State, int kWarps, int kCtas>
struct Exchange {
    State turns[2][kCtas * kWarps];
};

// kThreads threads of each of kCtas CTAs share a row; a CTA has kRows such teams (one where kCtas > 1).
template <class Operation, int kThreads, int kRows, int kCtas>
class Team {
    using State = typename Operation::State;
    static constexpr int kWarps = kThreads / 32, kFloats = sizeof(State) / sizeof(float);
    static_assert(kThreads % 32 == 0 && (kCtas == 1 || kRows == 1));

public:
    using Storage = Exchange<State, kWarps, kCtas>;
    static constexpr int kAll = kThreads * kCtas;

    __device__ __forceinline__ explicit Team(Storage* storages)
        : number_(kRows == 1 ? 0 : threadIdx.x / kThreads), rank_(0), storage_(storages + number_) {
        if constexpr (kCtas > 1) {
            asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank_));
            cluster_arrive_relaxed();  // nobody may write to a CTA that has not started
        }
    }

    // The caller's number among all threads of the row.
    __device__ __forceinline__ int thread() const { return rank_ * kThreads + (threadIdx.x - number_ * kThreads); }
    __device__ __forceinline__ int rank() const { return rank_; }
    __device__ __forceinline__ long long first_row() const {
        return static_cast<long long>(blockIdx.x / kCtas) * kRows + number_;
    }
    __device__ __forceinline__ long long next_row(long long row) const {
        return row + static_cast<long long>(gridDim.x / kCtas) * kRows;
    }

    // What Operation's join makes of all threads' states in pass kPass; every thread gets it.
    template <int kPass>
    __device__ __forceinline__ State join(State mine) {
        across_lanes<kPass, 32>(mine);
        if constexpr (kWarps * kCtas > 1) {
            constexpr int kStates = kWarps * kCtas;
            const int lane = threadIdx.x % 32, warp = (threadIdx.x - number_ * kThreads) / 32;
            State* const turn = storage_->turns[turn_];
            turn_ ^= 1;
            if constexpr (kCtas > 1) {
                if (fresh_) cluster_wait();
                fresh_ = false;
                if (lane < kCtas) tell(turn + rank_ * kWarps + warp, mine, lane);
                cluster_arrive();
                cluster_wait();
            } else {
                if (lane == 0) turn[warp] = mine;
                if constexpr (kRows == 1) __syncthreads();
                else barrier_sync(number_, kThreads);
            }
            mine = turn[lane % kStates];
#pragma unroll
            for (int other = 32; other < kStates; other += 32) Operation::template join<kPass>(mine, turn[other + lane]);
            across_lanes<kPass, (kStates < 32 ? kStates : 32)>(mine);
        }
        return mine;
    }

    // Before a CTA ends, where others may still be about to write to it: none is, after a join.
    __device__ __forceinline__ void leave() {
        if constexpr (kCtas > 1) {
            if (fresh_) cluster_wait();
        }
    }

private:
    template <int kPass, int kLanes>
    static __device__ __forceinline__ void across_lanes(State& mine) {
#pragma unroll
        for (int lanes = kLanes / 2; lanes; lanes /= 2) {
            State other;
#pragma unroll
            for (int i = 0; i < kFloats; ++i) other.value[i] = __shfl_xor_sync(~0u, mine.value[i], lanes);
            Operation::template join<kPass>(mine, other);
        }
    }

    static __device__ __forceinline__ void tell(State* place, const State& state, u32 rank) {
        const u32 there = map_to_rank(shared_address(place), rank);
#pragma unroll
        for (int i = 0; i < kFloats; ++i)
            asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there + 4 * i), "f"(state.value[i]) : "memory");
    }

    const int number_;
    int rank_;
    Storage* const storage_;
    u32 turn_ = 0;
    bool fresh_ = true;
};

}  // namespace evo

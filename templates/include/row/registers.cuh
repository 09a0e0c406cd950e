// A row in the registers of its threads: read once, whatever the number of passes.
#pragma once
#include "row/twice.cuh"

namespace evo {

// When weights are loaded: once for all rows of a thread, with each row, or late: those of a chunk while the chunk
// before it is finished, so that chunks do not wait for them one after the other. In a loop over rows, when the chunk is:
// the compiler would move such loads in front of the loop, and hold all weights.
enum class When { once_, early_, late_ };

template <int kPass, int kWidth, int kSteps, class Operation, class Threads>
__device__ __forceinline__ void held_passes(const Operation& operation, Threads& team, int columns,
                                            const Columns<Operation, kWidth> (&held)[kSteps],
                                            typename Operation::State& found) {
    if constexpr (kPass < Operation::kPasses) {
        if (needless<kPass, Operation>(found)) return;
        typename Operation::State mine = Operation::template none<kPass>(found);
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            if ((i * Threads::kAll + team.thread()) * kWidth < columns) {
                float x[kWidth];
                operation.values(held[i], x);
                operation.template take<kPass>(mine, x);
            }
        found = operation.template found<kPass>(team.template join<kPass>(mine));
        held_passes<kPass + 1, kWidth, kSteps>(operation, team, columns, held, found);
    }
}

// Rows of at most kSteps chunks of kWidth elements a thread. kAhead: the next row is loaded before this one is
// summed up. Columns must be a multiple of kWidth, and so must be what lies between two rows.
template <int kWidth, int kSteps, When kWhen, bool kAhead, bool kPersistent, class Operation, class Threads>
__device__ __forceinline__ void rows_in_registers(const Operation& operation, Threads& team, int rows, int columns) {
    using Held = Columns<Operation, kWidth>;
    using Weights = typename Operation::template Weights<kWidth>;
    const int first = team.thread() * kWidth;
    const auto more = [](int i) { return i * Threads::kAll * kWidth; };
    const auto there = [&](int i) { return first + more(i) < columns; };
    const auto load_row = [&](Held (&to)[kSteps], const Operation& own) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            if (there(i)) load_chunks<kWidth>(to[i], own, 0, more(i));
    };
    const auto load_weight = [&](Weights (&to)[kSteps], const Operation& own, int i) {
        if (i < kSteps && there(i)) own.load(to[i], more(i));
    };
    const auto load_weights = [&](Weights (&to)[kSteps], const Operation& own) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) load_weight(to, own, i);
    };
    constexpr bool kLate = kWhen == When::late_, kChunkAhead = kLate && !kPersistent;
    Held held[kSteps], next[kSteps];
    Weights weights[kSteps];
    long long row = team.first_row();
    Operation own = operation.at(row, first);
    if (row < rows) load_row(held, own);
    if constexpr (kWhen == When::once_) load_weights(weights, own);
    while (row < rows) {
        const long long following = team.next_row(row);
        if constexpr (kAhead) {
            if (following < rows) load_row(next, operation.at(following, first));
        }
        if constexpr (kWhen == When::early_) load_weights(weights, own);
        if constexpr (kChunkAhead) load_weight(weights, own, 0);
        if constexpr (kWhen == When::once_) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) operation.keep_packed(weights[i]);
        }
        typename Operation::State found = operation.start(row);
        held_passes<0, kWidth, kSteps>(operation, team, columns, held, found);
        if constexpr (Operation::kWritesRow) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) {
                if constexpr (kChunkAhead) load_weight(weights, own, i + 1);
                if (there(i)) {
                    if constexpr (kLate && !kChunkAhead) own.template load<true>(weights[i], more(i));
                    float x[kWidth];
                    operation.values(held[i], x);
                    own.finish(0, more(i), x, weights[i], found);
                }
            }
        }
        if (team.thread() == 0) operation.finish_row(row, found);
        if constexpr (!kPersistent) break;
        row = following;
        own = operation.at(row, first);
        if constexpr (kAhead) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) held[i] = next[i];
        } else if (row < rows) {
            load_row(held, own);
        }
    }
}

}  // namespace evo

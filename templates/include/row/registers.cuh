// A row in the registers of its threads: read once, whatever the number of passes.
#pragma once
#include "row/twice.cuh"

namespace evo {

// When weights are loaded: once for all rows of a thread, with each row, or late: those of a chunk while the chunk
// before it is finished, so that chunks do not wait for them one after the other.
enum class When { once_, early_, late_ };

template <int kPass, int kWidth, int kSteps, class Operation, class Threads>
__device__ __forceinline__ void held_passes(const Operation& operation, Threads& team, int columns,
                                            const Columns<Operation, kWidth> (&held)[kSteps],
                                            typename Operation::State& found) {
    if constexpr (kPass < Operation::kPasses) {
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
    const auto column = [&](int i) { return first + more(i); };
    const auto load_row = [&](Held (&to)[kSteps], long long row) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            if (column(i) < columns) load_chunks<kWidth>(to[i], operation, row, first, more(i));
    };
    const auto load_weight = [&](Weights (&to)[kSteps], int i) {
        if (i < kSteps && column(i) < columns) operation.load(to[i], first, more(i));
    };
    const auto load_weights = [&](Weights (&to)[kSteps]) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) load_weight(to, i);
    };
    Held held[kSteps], next[kSteps];
    Weights weights[kSteps];
    long long row = team.first_row();
    if (row < rows) load_row(held, row);
    if constexpr (kWhen == When::once_) load_weights(weights);
    while (row < rows) {
        const long long following = team.next_row(row);
        if constexpr (kAhead) {
            if (following < rows) load_row(next, following);
        }
        if constexpr (kWhen == When::early_) load_weights(weights);
        if constexpr (kWhen == When::once_) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) operation.keep_packed(weights[i]);
        }
        if constexpr (kWhen == When::late_) load_weight(weights, 0);
        typename Operation::State found = {};
        held_passes<0, kWidth, kSteps>(operation, team, columns, held, found);
        if constexpr (Operation::kWritesRow) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) {
                if constexpr (kWhen == When::late_) load_weight(weights, i + 1);
                if (column(i) < columns) {
                    float x[kWidth];
                    operation.values(held[i], x);
                    operation.finish(row, column(i), x, weights[i], found);
                }
            }
        }
        if (team.thread() == 0) operation.finish_row(row, found);
        if constexpr (!kPersistent) break;
        row = following;
        if constexpr (kAhead) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i) held[i] = next[i];
        } else if (row < rows) {
            load_row(held, row);
        }
    }
}

}  // namespace evo

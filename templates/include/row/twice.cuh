// A row that is read again for each pass: of any length, with few registers.
#pragma once
#include "row/chunk.cuh"
#include "row/team.cuh"

namespace evo {

// Visits the chunks of kWidth elements that belong to the caller, kAhead loads at once, the last one first where
// kBackward: the end of the row is what the caches still hold.
template <int kWidth, int kAhead, bool kBackward, class Operation, class Visit>
__device__ __forceinline__ void visit_chunks(const Operation& operation, long long row, int columns, int first,
                                             int step, const Visit& visit) {
    const int count = first < columns ? (columns - first - 1) / step + 1 : 0;
    const int begin = kBackward ? first + (count - 1) * step : first, stride = kBackward ? -step : step;
    int done = 0;
    for (; done + kAhead <= count; done += kAhead) {
        Columns<Operation, kWidth> held[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) load_chunks<kWidth>(held[i], operation, row, begin + (done + i) * stride);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) visit(held[i], begin + (done + i) * stride);
    }
#pragma unroll 1
    for (; done < count; ++done) {
        Columns<Operation, kWidth> held;
        load_chunks<kWidth>(held, operation, row, begin + done * stride);
        visit(held, begin + done * stride);
    }
}

// Whether a pass has nothing to add to what is found of a row. All threads of a row found the same; that a warp's did
// is said to the compiler.
template <int kPass, class Operation>
__device__ __forceinline__ bool needless(const typename Operation::State& found) {
    if constexpr (kPass > 0 && Operation::kMaySuffice) return __all_sync(~0u, Operation::suffices(found));
    else return false;
}

template <int kPass, int kWidth, int kAhead, bool kBackward, class Operation, class Threads>
__device__ __forceinline__ void read_passes(const Operation& operation, Threads& team, long long row, int columns,
                                            typename Operation::State& found) {
    if constexpr (kPass < Operation::kPasses) {
        if (needless<kPass, Operation>(found)) return;
        typename Operation::State mine = Operation::template none<kPass>(found);
        visit_chunks<kWidth, kAhead, kBackward && kPass % 2 == 1>(
            operation, row, columns, team.thread() * kWidth, Threads::kAll * kWidth,
            [&](const Columns<Operation, kWidth>& held, int) {
                float x[kWidth];
                operation.values(held, x);
                operation.template take<kPass>(mine, x);
            });
        found = operation.template found<kPass>(team.template join<kPass>(mine));
        read_passes<kPass + 1, kWidth, kAhead, kBackward>(operation, team, row, columns, found);
    }
}

// All rows, each read once a pass and once for what is written.
template <int kWidth, int kAhead, bool kBackward, bool kPersistent, class Operation, class Threads>
__device__ __forceinline__ void rows_read_twice(const Operation& operation, Threads& team, int rows, int columns) {
    for (long long row = team.first_row(); row < rows; row = team.next_row(row)) {
        typename Operation::State found = operation.start(row);
        read_passes<0, kWidth, kAhead, kBackward>(operation, team, row, columns, found);
        if constexpr (Operation::kWritesRow)
            visit_chunks<kWidth, kAhead, kBackward && Operation::kPasses % 2 == 1>(
                operation, row, columns, team.thread() * kWidth, Threads::kAll * kWidth,
                [&](const Columns<Operation, kWidth>& held, int column) {
                    float x[kWidth];
                    operation.values(held, x);
                    typename Operation::template Weights<kWidth> weights;
                    operation.load(weights, column);
                    operation.finish(row, column, x, weights, found);
                });
        if (team.thread() == 0) operation.finish_row(row, found);
        if constexpr (!kPersistent) break;
    }
}

}  // namespace evo

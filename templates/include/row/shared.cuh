// A row in the shared memory of a cluster: each CTA copies its part there, some rows ahead, and reads it from there
// for each pass.
#pragma once
#include "ptx/bulk.cuh"
#include "row/twice.cuh"

namespace evo {

// How rows come into shared memory: one thread starts bulk copies; or each thread copies the chunks that it reads
// itself, so that no thread waits for another.
enum class Copies { bulk_, threads_ };

// kStages rows of kRoom elements of each matrix that is read, and a barrier for each piece of each.
template <class Operation, int kRoom, int kStages, int kPieces>
struct RowParts {
    alignas(16) typename Operation::Element elements[kStages][Operation::kStreams][kRoom];
    alignas(8) unsigned long long barriers[kStages][kPieces];
};

template <class Operation, class Threads, int kThreads, int kCtas, int kWidth, int kRoom, int kStages, int kPieces,
          Copies kCopies, int kAhead>
class SharedRows {
    using Element = typename Operation::Element;
    using Row = Columns<Operation, kWidth>;
    static constexpr int kStep = kThreads * kWidth, kPiece = kRoom / kPieces;
    static constexpr int kSize = static_cast<int>(sizeof(Element)), kGranule = 16 / kSize;
    static_assert(kPiece % kStep == 0 && kStep % kGranule == 0, "each piece is the same for all threads");

public:
    using Storage = RowParts<Operation, kRoom, kStages, kPieces>;

    __device__ __forceinline__ SharedRows(Storage& storage, const Operation& operation, const Threads& team, int columns)
        : storage_(storage), operation_(operation) {
        const int part = part_of(columns);
        first_ = min(columns, team.rank() * part);
        count_ = min(columns - first_, part);
        if constexpr (kCopies == Copies::bulk_) {
            if (threadIdx.x == 0) {
                for (int i = 0; i < kStages * kPieces; ++i)
                    mbarrier_init(shared_address(&storage.barriers[i / kPieces][i % kPieces]), 1);
                fence_mbarrier_init();
            }
            __syncthreads();
        }
    }

    // Whether rows fit, and lie so that 16 bytes are one chunk.
    static __device__ __forceinline__ bool serves(int columns, int pitch) {
        return columns % kGranule == 0 && pitch % kGranule == 0 && part_of(columns) <= kRoom;
    }

    template <bool kPersistent>
    __device__ __forceinline__ void run(Threads& team, int rows) {
        const long long stride = team.next_row(0);
        long long row = team.first_row();
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage) start(row + stage * stride, rows, stage);
        int turn = 0;
        for (; row < rows; row += stride, ++turn) {
            const int stage = turn % kStages;
            typename Operation::State found = operation_.start(row);
            passes<0>(team, stage, turn, found, row, rows, stride);
            if constexpr (Operation::kWritesRow)
                visit(stage, [&](const Row& held, int column) {
                    float x[kWidth];
                    operation_.values(held, x);
                    typename Operation::template Weights<kWidth> weights;
                    operation_.load(weights, first_ + column);
                    operation_.finish(row, first_ + column, x, weights, found);
                });
            if (team.thread() == 0) operation_.finish_row(row, found);
            if constexpr (!kPersistent) break;
            if constexpr (kStages == 1) {
                if constexpr (kCopies == Copies::bulk_) __syncthreads();  // all have read the row
                start(row + stride, rows, 0);
            }
        }
    }

private:
    static __device__ __forceinline__ int part_of(int columns) {
        constexpr int kUnit = kGranule * kCtas;
        return (columns + kUnit - 1) / kUnit * kGranule;
    }

    // Starts copying this CTA's part of `row`. Past the last row nothing is copied.
    __device__ __forceinline__ void start(long long row, int rows, int stage) {
        if constexpr (kCopies == Copies::bulk_) {
            if (threadIdx.x != 0 || row >= rows) return;
#pragma unroll
            for (int piece = 0; piece < kPieces; ++piece) {
                const int count = max(0, min(kPiece, count_ - piece * kPiece));
                const u32 barrier = shared_address(&storage_.barriers[stage][piece]);
                mbarrier_expect(barrier, count * kSize * Operation::kStreams);
                if (count > 0)
                    for (int i = 0; i < Operation::kStreams; ++i)
                        bulk_load(shared_address(&storage_.elements[stage][i][piece * kPiece]),
                                  operation_.source(i, row) + first_ + piece * kPiece, count * kSize, barrier);
            }
        } else {
            if (row < rows)
                for (int i = 0; i < Operation::kStreams; ++i) {
                    const Element* const from = operation_.source(i, row) + first_;
                    Element* const to = storage_.elements[stage][i];
#pragma unroll kAhead
                    for (int column = threadIdx.x * kWidth; column < count_; column += kStep)
                        cp_async_16(shared_address(to + column), from + column, true);
                }
            cp_async_commit();
        }
    }

    // Until what this thread reads first of the row of a turn is there.
    __device__ __forceinline__ void wait(int turn) {
        if constexpr (kCopies == Copies::threads_) {
            if (kStages == 1) cp_async_wait<0>();
            else if (turn == 0) cp_async_wait<kStages - 1>();
            else cp_async_wait<(kStages > 1 ? kStages - 2 : 0)>();
        }
    }

    template <class Visit>
    __device__ __forceinline__ void visit_piece(int stage, int begin, int end, const Visit& visit) const {
#pragma unroll kAhead
        for (int column = begin + threadIdx.x * kWidth; column < end; column += kStep) {
            Row held;
#pragma unroll
            for (int i = 0; i < Operation::kStreams; ++i)
                held.of[i].template load<Caching::usual_>(&storage_.elements[stage][i][column]);
            visit(held, column);
        }
    }
    template <class Visit>
    __device__ __forceinline__ void visit(int stage, const Visit& visit) const {
        visit_piece(stage, 0, count_, visit);
    }

    template <int kPass>
    __device__ __forceinline__ void passes(Threads& team, int stage, int turn, typename Operation::State& found,
                                           long long row, int rows, long long stride) {
        if constexpr (kPass < Operation::kPasses) {
            if (needless<kPass, Operation>(found)) return;
            typename Operation::State mine = Operation::template none<kPass>(found);
            const auto take = [&](const Row& held, int) {
                float x[kWidth];
                operation_.values(held, x);
                operation_.template take<kPass>(mine, x);
            };
            if constexpr (kPass == 0) wait(turn);
            if constexpr (kPass == 0 && kCopies == Copies::bulk_) {
#pragma unroll 1
                for (int piece = 0; piece < kPieces; ++piece) {
                    mbarrier_wait(shared_address(&storage_.barriers[stage][piece]), turn / kStages & 1);
                    visit_piece(stage, piece * kPiece, min(count_, (piece + 1) * kPiece), take);
                }
            } else {
                visit(stage, take);
            }
            found = operation_.template found<kPass>(team.template join<kPass>(mine));
            // all threads have left the row before this one: its place is free
            if constexpr (kPass == 0 && kStages > 1) {
                if (turn > 0) start(row + (kStages - 1) * stride, rows, (turn - 1) % kStages);
            }
            passes<kPass + 1>(team, stage, turn, found, row, rows, stride);
        }
    }

    Storage& storage_;
    const Operation& operation_;
    int first_, count_;
};

}  // namespace evo

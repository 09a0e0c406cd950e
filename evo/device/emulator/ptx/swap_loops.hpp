// Plain reads that only begin a loop of compare-and-swap.
#pragma once
#include <vector>

#include "lower.hpp"

namespace ptx {

// Of every statement, whether it is a plain load whose value serves as nothing but what an atom.cas of the
// same word expects first, as in the loop of the CUDA programming guide: old = *p; do { expected = old; old =
// atomicCAS(p, expected, f(expected)); } while (old != expected). Whatever such a read finds, only a value
// that the word really had comes through, so it may race with the atomics of others. `rows` and `targets` are
// those of live_ranges. Empty: there is none.
std::vector<bool> swap_reads(const Function& f, const std::vector<const Row*>& rows,
                             const std::vector<std::vector<u32>>& targets);

}  // namespace ptx

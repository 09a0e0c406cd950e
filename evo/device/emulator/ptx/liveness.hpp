// From where to where the registers of a function are in use.
#pragma once
#include <vector>

#include "lower.hpp"

namespace ptx {

template <class F>
void registers_of(const Operand& o, F f) {
  if (o.reg >= 0) f(static_cast<u32>(o.reg));
  for (auto& p : o.parts) registers_of(p, f);
}

// Of every register: the first and the last statement at which it is live. first = ~0: it is never used.
struct LiveRanges {
  std::vector<u32> first, last;
};

// `rows` are the table's rows of the statements, `targets` the statements that each may branch to. Throws
// Unsupported if the function is too large.
LiveRanges live_ranges(const Function& f, const std::vector<const Row*>& rows,
                       const std::vector<std::vector<u32>>& targets);

}  // namespace ptx

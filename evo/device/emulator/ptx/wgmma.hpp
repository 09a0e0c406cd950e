// wgmma in flight.
#pragma once
#include "hopper.hpp"

namespace ptx {

struct WgmmaOp {
  const Ins* ins = nullptr;
  u32 pc = 0, group = 0;
  u64 a = 0, b = 0;  // descriptors at issue
  bool accumulate = false, executed = false;
  std::vector<u32> clock;  // at issue: what the operands must have been ordered before
};

}  // namespace ptx

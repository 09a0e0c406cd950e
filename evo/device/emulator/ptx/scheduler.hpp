// Launching: refuses what no GPU would run, spreads clusters over workers, lets their warps take turns,
// reports the first fault.
#pragma once
#include <memory>

#include "machine.hpp"

namespace ptx {

struct Outcome {
  int kind = EVO_PTX_OK;
  std::string text, message, kernel, file, ptx_text, space, buffer, other;
  u32 line = 0, ptx_line = 0, lanes = 0, nbytes = 0;
  i32 cta[3] = {-1, -1, -1}, thread[3] = {-1, -1, -1}, warp = -1, lane = -1;
  u64 address = 0;
  i64 offset = 0;
  double seconds = 0;
  std::vector<Count> counts;
  Totals totals;
  u64 ctas = 0, warps = 0, threads = 0;
};

Outcome run_launch(const Program& program, const evo_ptx_launch& config);

}  // namespace ptx

#include "hopper.hpp"
#include "lanes.hpp"

namespace ptx {
Mbarrier& mbarrier_at(Warp& w, u32 address, u32 lane) {
  Cta& c = cta_of(w, address);
  const u32 o = shared_offset(w, c, address, 8);
  const u16 k = c.mbarrier_at.empty() ? 0 : c.mbarrier_at[o >> 3];
  if (!k) throw Fault(EVO_PTX_SYNC, "no mbarrier has been initialised at shared address " + hex(address), static_cast<int>(lane));
  Mbarrier& b = *c.mbarriers[k - 1u];
  if (w.worker->launch->race && b.init_clock > w.clock[b.init_agent] && b.init_agent != w.agent) {
    Fault f(EVO_PTX_RACE, "use of an mbarrier not ordered after its mbarrier.init", static_cast<int>(lane));
    throw f.at(Space::SHARED, address, 8, "shared memory", o).against(agent_name(*w.cta->cluster, b.init_agent), b.init_pc);
  }
  return b;
}
void advance(Cluster& c, Mbarrier& b) {
  c.progress = true;
  if (b.pending != 0 || b.tx != 0) return;
  b.phase++;
  b.pending = b.expected;
  b.done = b.current;
}
void land(Warp&, Mbarrier&) {}
void land_all(Warp&) {}
extern const std::span<const Row> hopper_rows;
const std::span<const Row> hopper_rows{};
}

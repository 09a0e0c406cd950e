// The life of the CTAs of a cluster, as others see it: shared memory of another CTA may be used when that CTA
// is known to have started, and while it is known not to have exited.
#include "barriers.hpp"

namespace ptx {

void check_alive(const Warp& w, const Cta& c, u32 address) {
  const std::string other = "the shared memory of CTA rank " + std::to_string(c.rank) + " of the cluster";
  const auto fault = [&](const std::string& text) {
    Fault f(EVO_PTX_RACE, text);
    return f.at(Space::SHARED, address, 0, "shared memory",
                static_cast<i64>(address & ~RANK_MASK) - SHARED_BASE);
  };
  if (c.done())
    throw fault("use of " + other + ", which has exited: a barrier.cluster at its end is missing");
  if (!w.worker->launch->race) return;
  for (const Warp& there : c.warps)
    if (w.clock[there.agent] > w.cta->cluster->base_clock) return;
  throw fault("use of " + other + ", which may not have started: a barrier.cluster before is missing");
}

void visit(Warp& w, Cta& c) {
  if (!w.worker->launch->race) return;
  if (c.visits.empty()) c.visits.resize(w.cta->cluster->agents);
  c.visits[w.agent] = {w.clock[w.agent], w.pc};
}

void check_visits(Cta& c) {
  if (c.visits.empty()) return;
  for (Cta& other : c.cluster->ctas)
    for (Warp& guest : other.warps) {
      const Visit& v = c.visits[guest.agent];
      if (!v.clock) continue;
      bool known = false;
      for (const Warp& w : c.warps) known |= w.clock[guest.agent] >= v.clock;
      if (known) continue;
      guest.pc = v.pc;
      throw std::pair<Fault, Warp*>(
          Fault(EVO_PTX_RACE, "use of the shared memory of CTA rank " + std::to_string(c.rank) +
                                  " of the cluster, which may have exited: a barrier.cluster at its end is "
                                  "missing"),
          &guest);
    }
}

void forget_visits(Cta& c) {
  for (size_t k = 0; k < c.visits.size(); k++)
    if (c.visits[k].clock <= c.cluster->arrived_done[k]) c.visits[k] = {};
}

}  // namespace ptx

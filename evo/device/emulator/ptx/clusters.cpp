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

namespace {

void note(Warp& w, std::vector<Visit>& visits) {
  if (!w.worker->launch->race) return;
  if (visits.empty()) visits.resize(w.cta->cluster->agents);
  visits[w.agent] = {w.clock[w.agent], w.pc};
}

void check(const Cta& c, const std::vector<Visit>& visits) {
  if (visits.empty()) return;
  const Cluster& cluster = *c.cluster;
  for (Cta& other : c.cluster->ctas)
    for (Warp& guest : other.warps) {
      const Visit& v = visits[guest.agent];
      if (!v.clock) continue;
      bool known = false;
      for (const Warp& w : c.warps) known |= w.clock[guest.agent] >= v.clock;
      if (known) continue;
      guest.pc = v.pc;
      const bool relaxed = v.clock <= cluster.arrived_done[guest.agent];
      throw std::pair<Fault, Warp*>(
          Fault(EVO_PTX_RACE,
                "use of the shared memory of CTA rank " + std::to_string(c.rank) +
                    " of the cluster, which may have exited: " +
                    (relaxed ? "the arrival at the barrier.cluster after it is relaxed, and does "
                               "not wait until this has come to pass"
                             : "a barrier.cluster at its end is missing")),
          &guest);
    }
}

void forget(std::vector<Visit>& visits, const std::vector<u32>& over) {
  for (size_t k = 0; k < visits.size(); k++)
    if (visits[k].clock <= over[k]) visits[k] = {};
}

}  // namespace

void visit(Warp& w, Cta& c, bool late) { note(w, late ? c.late_visits : c.visits); }

void visit(Warp& w, Mbarrier& b) {
  note(w, b.guests);
  b.guest_phase = b.phase;
}

void check_visits(Cta& c) {
  check(c, c.visits);
  check(c, c.late_visits);
  for (const auto& b : c.mbarriers) check(c, b->guests);
}

void forget_visits(Cta& c) {
  forget(c.visits, c.cluster->arrived_done);
  forget(c.late_visits, c.cluster->handed_done);
  for (auto& b : c.mbarriers) forget(b->guests, c.cluster->handed_done);
}

}  // namespace ptx

// Barriers of a CTA and of a cluster, fences, and the registers that warps hand to each other.
#include <algorithm>

#include "async.hpp"
#include "barriers.hpp"
#include "hopper.hpp"
#include "lower.hpp"

namespace ptx {
namespace {

u32 live_threads(const Cta& c) {
  u32 n = 0;
  for (auto& w : c.warps)
    if (w.status != Status::DONE) n += 32;
  return n;
}

// ---- bar
void release(Cta& c, Barrier& b) {
  const u32 words = c.cluster->clock_words;
  for (auto& w : c.warps) {
    if (!(b.warps[w.id >> 6] >> (w.id & 63) & 1)) continue;
    w.status = Status::READY;
    if (c.cluster->worker->launch->race) {
      std::copy_n(b.clock.begin(), words, w.clock);
      w.clock[w.agent]++;
      w.foreign = b.foreign;
      join(w.fences, b.fences);
    }
    const Ins& I = *w.barrier_ins;
    if (I.n) {  // bar.red: 1 popc, 2 and, 3 or
      const u32 lanes = w.active;
      if (I.n == 1) each_lane(lanes, [&](u32 l) { w.u(I.d)[l] = b.popc; });
      else w.set_predicate(I.d, lanes, (I.n == 2 ? b.all != 0 : b.any != 0) ? FULL : 0);
    }
  }
  b = Barrier{};
  c.cluster->progress = true;
}
void check(Cta& c, Barrier& b) {
  if (!b.in_use) return;
  if (b.expected) {
    if (b.arrived == b.expected) release(c, b);
    else if (b.arrived > b.expected)
      throw Fault(EVO_PTX_SYNC, "barrier: " + std::to_string(b.arrived) + " threads arrived where " +
                                    std::to_string(b.expected) + " were expected");
  } else if (b.arrived >= live_threads(c)) {
    release(c, b);
  }
}

// a: slot of the barrier number; b: slot of the thread count + 1; c: predicate of the reduction; flags: 1
// arrive only, 2 predicate negated; n: reduction
void bar(Warp& w, const Ins& I, u32 m) {
  Cta& c = *w.cta;
  const u32 lane = static_cast<u32>(std::countr_zero(m));
  const u32 id = w.u(I.a)[lane];
  if (id >= 16) throw Fault(EVO_PTX_BAD_OPERAND, "barrier number " + std::to_string(id) + " is not below 16");
  const u32 expected = I.b ? w.u(I.b - 1)[lane] : 0;
  if (I.b && (expected == 0 || expected % 32 || expected > c.warps.size() * 32)) {
    throw Fault(EVO_PTX_SYNC, "barrier " + std::to_string(id) + ": the thread count " +
                                  std::to_string(expected) + " is not a multiple of 32 up to the CTA's size");
  }
  Barrier& b = c.barriers[id];
  if (b.in_use && b.expected != expected)
    throw Fault(EVO_PTX_SYNC, "barrier " + std::to_string(id) + " is used with " + std::to_string(expected) +
                                  " threads while others wait for " +
                                  (b.expected ? std::to_string(b.expected) : "all threads"));
  const u32 words = c.cluster->clock_words;
  if (!b.in_use) b.clock.assign(words, 0);
  b.in_use = true;
  b.expected = expected;
  b.arrived += 32;
  if (w.worker->launch->race) {
    join(b.clock.data(), w.clock, words);
    w.clock[w.agent]++;
    b.foreign = join(b.foreign, w.foreign);
    join(b.fences, w.fences);
  }
  if (I.n) {
    const u32 p = (w.predicates[I.c] ^ (I.flags & 2 ? FULL : 0)) & m;
    b.popc += static_cast<u32>(std::popcount(p));
    b.any |= p;
    if (p != m) b.all = 0;
  }
  if (!(I.flags & 1)) {
    w.status = Status::AT_BARRIER;
    w.barrier = id;
    w.barrier_ins = &I;
    b.warps[w.id >> 6] |= u64(1) << (w.id & 63);
    w.worker->totals.barrier_waits++;
  } else {
    c.cluster->progress = true;
  }
  check(c, b);
}
void make_bar(Lower& x) {
  // bar{.cta}.sync a{, b}; .arrive a, b; .red.popc.u32 d, a{, b}, {!}p; .red.{and,or}.pred p, a{, b}, {!}q.
  // barrier.* is the same.
  const bool red = x.has("red"), arrive = x.has("arrive");
  size_t at = 0;
  x.ins.flow = Flow::ALIGNED;
  if (red) {
    x.ins.n = x.has("popc") ? 1 : x.has("and") ? 2 : 3;
    x.ins.d = x.ins.n == 1 ? x.to(0, "u32") : x.predicate_to(x.operand(0));
    at = 1;
  }
  x.ins.a = x.from(at, "u32");
  const size_t last = x.count() - (red ? 1 : 0);
  x.ins.b = at + 1 < last ? x.from(at + 1, "u32") + 1 : 0;
  if (arrive && !x.ins.b) x.unsupported("bar.arrive needs a thread count");
  if (red) {
    bool neg = false;
    x.ins.c = x.predicate(x.operand(x.count() - 1), &neg);
    if (neg) x.ins.flags |= 2;
  }
  if (arrive) x.ins.flags |= 1;
  x.set(bar);
}

// ---- barrier.cluster
void pass_cluster_barrier(Cluster& c, Warp& w) {
  w.cluster_arrived = false;
  w.cluster_passed = w.cluster_phase + 1;
  join(w.clock, c.barrier_done.data(), c.clock_words);
  w.clock[w.agent]++;
  w.foreign = join(w.foreign, c.barrier_foreign_done);
  join(w.fences, c.barrier_fences_done);
  forget_visits(*w.cta);
}
void cluster_check(Cluster& c) {
  if (!c.barrier_arrived) return;
  u32 pending = 0;
  for (auto& cta : c.ctas)
    for (auto& w : cta.warps)
      pending += w.status != Status::DONE && !(w.cluster_arrived && w.cluster_phase == c.barrier_phase);
  if (pending) return;
  c.barrier_phase++;
  c.barrier_arrived = 0;
  c.barrier_done = c.barrier_clock;
  c.barrier_foreign_done = c.barrier_foreign;
  c.barrier_fences_done = nullptr;
  join(c.barrier_fences_done, c.barrier_fences);
  c.arrived_done = c.arrived, c.handed_done = c.handed;
  c.progress = true;
  for (auto& cta : c.ctas)
    for (auto& w : cta.warps)
      if (w.status == Status::AT_CLUSTER_BARRIER) {
        w.status = Status::READY;
        pass_cluster_barrier(c, w);
      }
}
void cluster_arrive(Warp& w, const Ins& I, u32) {  // n: 1 relaxed
  Cluster& c = *w.cta->cluster;
  if (w.cluster_arrived)
    throw Fault(EVO_PTX_SYNC, "barrier.cluster.arrive twice without a barrier.cluster.wait between");
  w.cluster_arrived = true;
  w.cluster_phase = c.barrier_phase;
  c.barrier_arrived++;
  // fence.mbarrier_init is a release: even a relaxed arrival after it announces the mbarrier.
  for (auto& b : w.cta->mbarriers)
    if (b->alive && b->fenced && !b->announced && b->init_agent == w.agent)
      b->announced = w.cluster_phase + 1;
  if (!I.n) {
    join(c.barrier_clock.data(), w.clock, c.clock_words);
    c.barrier_foreign = join(c.barrier_foreign, w.foreign);
    join(c.barrier_fences, w.fences);
  }
  u32& started = c.barrier_clock[w.agent];  // even a relaxed arrival tells that
  started = std::max(started, c.base_clock + 1);
  u32& handed = c.handed[w.agent];  // a relaxed arrival hands on what came before the last fence
  if (!I.n) handed = w.clock[w.agent];
  else if (const Known* k = w.fences ? &w.fences->fenced[1] : nullptr; k && k->clock)
    handed = std::max(handed, (*k->clock)[w.agent]);
  c.arrived[w.agent] = w.clock[w.agent]++;
  c.progress = true;
  cluster_check(c);
}
void cluster_wait(Warp& w, const Ins& I, u32) {
  Cluster& c = *w.cta->cluster;
  if (!w.cluster_arrived)
    throw Fault(EVO_PTX_SYNC, "barrier.cluster.wait without a barrier.cluster.arrive before it");
  w.worker->totals.barrier_waits++;
  if (c.barrier_phase != w.cluster_phase) {
    pass_cluster_barrier(c, w);
    return;
  }
  w.status = Status::AT_CLUSTER_BARRIER;
  w.barrier_ins = &I;
}
void make_cluster(Lower& x) {
  x.ins.flow = Flow::ALIGNED;
  x.ins.n = x.has("relaxed");
  x.set(x.has("arrive") ? cluster_arrive : cluster_wait);
}

// ---- fences
void fence_scope(Lower& x) {
  if (x.has("gpu") || x.has("sys") || x.has("gl"))
    x.set([](Warp& w, const Ins&, u32) { fence(w, Scope::GPU); });
  else if (x.has("cluster")) x.set([](Warp& w, const Ins&, u32) { fence(w, Scope::CLUSTER); });
  else if (x.has("cta")) x.set([](Warp& w, const Ins&, u32) { fence(w, Scope::CTA); });
  else x.unsupported("fence without a scope");
}
// Everything that is ordered before the warp is now visible to the async proxy. n: 1 in shared, 2 in global
// memory.
void proxy_fence(Warp& w, const Ins& I, u32) {
  const Cluster& c = *w.cta->cluster;
  if (!w.worker->launch->race || !c.shared_proxy) return;
  if (I.n & 1) join(w.clock + c.shared_proxy, w.clock, c.agents);
  if (I.n & 2) {
    join(w.clock + c.global_proxy, w.clock, c.agents);
    w.foreign = all_proxied(w.foreign, c.global_proxy);
  }
  w.clock[w.agent]++;
}
void make_proxy_fence(Lower& x) {
  const bool shared = x.has("shared::cta") || x.has("shared::cluster") ||
                      x.has("sync_restrict::shared::cta") || x.has("sync_restrict::shared::cluster");
  x.ins.n = x.has("global") ? 2 : shared ? 1 : 3;
  if (x.has("async") || x.has("async::generic")) x.set(proxy_fence);
  else x.set([](Warp&, const Ins&, u32) {});
}
void mbarrier_fence(Lower& x) {
  x.set([](Warp& w, const Ins&, u32) {
    for (auto& b : w.cta->mbarriers)
      if (b->alive && b->init_agent == w.agent) b->fenced = true;
  });
}
void nop(Lower& x) {
  x.set([](Warp&, const Ins&, u32) {});
}

// ---- setmaxnreg
// A CTA owns the registers that it was launched with, and no more. A warp that asks for more than others have
// given back waits. An H200 shows two more rules. Each quarter of an SM has registers of its own, so warps
// share with those of the same number modulo 4. What a warp has when it exits stays with the CTA, out of
// reach.
void hand_out(Cta& c) {
  for (auto& w : c.warps) {
    const u32 more = (w.wanted - w.owned) * 32;
    u32& free = c.free_registers[w.id % 4];
    if (w.status != Status::AT_REGISTERS || more > free) continue;
    free -= more;
    w.owned = w.wanted;
    w.status = Status::READY;
    c.cluster->progress = true;
  }
}
template <class F>
void each_of_warpgroup(Warp& w, F f) {
  for (auto& other : w.cta->warps)
    if (other.id / 4 == w.id / 4 && other.id != w.id) f(other);
}
void setmaxnreg(Warp& w, const Ins& I, u32) {  // imm: registers a thread; n: 1 inc
  if (!w.owned) return;
  const u32 asked = static_cast<u32>(I.imm);
  if (I.n ? asked < w.owned : asked > w.owned)
    throw Fault(EVO_PTX_BAD_OPERAND,
                "setmaxnreg." + std::string(I.n ? "inc" : "dec") + " to " + std::to_string(asked) +
                    " registers a thread, of which the warp has " + std::to_string(w.owned));
  if (w.worker->launch->race) {
    each_of_warpgroup(w, [&](const Warp& other) {
      if (other.adjusted < w.adjusted ||
          (other.adjusted == w.adjusted && w.adjusted && other.adjusted_clock > w.clock[other.agent]))
        throw Fault(
            EVO_PTX_SYNC,
            "setmaxnreg again, and warp " + std::to_string(other.id) +
                " of the warpgroup is not known to have passed the last one: a barrier between is missing");
    });
    w.adjusted_clock = w.clock[w.agent]++;
  }
  w.adjusted++;
  w.adjusted_pc = w.pc;
  if (I.n) {
    w.wanted = asked;
    w.status = Status::AT_REGISTERS;
  } else {
    w.cta->free_registers[w.id % 4] += (w.owned - asked) * 32;
    w.owned = w.wanted = asked;
  }
  hand_out(*w.cta);
}
void make_setmaxnreg(Lower& x) {
  const u64 asked = x.immediate(0);
  if (asked < 24 || asked > 256 || asked % 8)
    x.unsupported("a register count is a multiple of 8 from 24 to 256");
  x.ins.flow = Flow::ALIGNED;
  x.ins.imm = static_cast<i32>(asked);
  x.ins.n = x.has("inc");
  x.set(setmaxnreg);
}

const Row ROWS[] = {
    {"bar ?cta .sync|arrive ?aligned", Class::BARRIER, 0, make_bar,
     "all live lanes of a warp must arrive together"},
    {"barrier ?cta .sync|arrive ?aligned", Class::BARRIER, 0, make_bar,
     "all live lanes of a warp must arrive together"},
    {"bar ?cta .red .popc ?aligned .u32", Class::BARRIER, 1, make_bar},
    {"bar ?cta .red .and|or ?aligned .pred", Class::BARRIER, 1, make_bar},
    {"barrier ?cta .red .popc ?aligned .u32", Class::BARRIER, 1, make_bar},
    {"barrier ?cta .red .and|or ?aligned .pred", Class::BARRIER, 1, make_bar},
    {"barrier .cluster .arrive ?release|relaxed ?aligned", Class::BARRIER, 0, make_cluster},
    {"barrier .cluster .wait ?acquire ?aligned", Class::BARRIER, 0, make_cluster},
    {"membar .cta|gl|sys", Class::BARRIER, 0, fence_scope},
    {"fence ?sc|acq_rel|acquire|release .cta|cluster|gpu|sys", Class::BARRIER, 0, fence_scope},
    {"fence .mbarrier_init .release .cluster", Class::BARRIER, 0, mbarrier_fence},
    {"fence .proxy .async|async::generic|alias|tensormap::generic ?acquire|release "
     "?global|shared::cta|shared::cluster ?sync_restrict::shared::cta|sync_restrict::shared::cluster "
     "?cta|cluster|gpu|sys",
     Class::BARRIER, 0, make_proxy_fence},
    {"setmaxnreg .inc|dec .sync .aligned .u32", Class::BARRIER, 0, make_setmaxnreg,
     "no effect where the registers at entry are not known"},
    {"nanosleep .u32", Class::SPECIAL, 0,
     [](Lower& x) { x.set([](Warp& w, const Ins&, u32) { w.polling = true; }); }, "no time passes"},
    {"griddepcontrol .launch_dependents|wait", Class::SPECIAL, 0, nop, "no effect: launches do not overlap"},
};
}  // namespace

void warp_exited(Warp& w) {
  Cta& c = *w.cta;
  if (!w.copies.empty()) {
    u32 all[32];
    std::fill(all, all + 32, FULL);
    land_copies(w, FULL, all);
  }
  land_all(w);
  if (c.done()) check_visits(c);
  else
    for (auto& b : c.barriers) check(c, b);
  cluster_check(*c.cluster);
}

void check_warpgroups(Cta& c) {
  for (auto& w : c.warps)
    each_of_warpgroup(w, [&](const Warp& other) {
      if (other.adjusted >= w.adjusted) return;
      w.pc = w.adjusted_pc;
      throw std::pair<Fault, Warp*>(
          Fault(EVO_PTX_SYNC, "setmaxnreg is for whole warpgroups: warp " + std::to_string(other.id) +
                                  " has not executed it"),
          &w);
    });
}

extern const std::span<const Row> barrier_rows;
const std::span<const Row> barrier_rows{ROWS};
}  // namespace ptx

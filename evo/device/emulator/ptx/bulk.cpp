// The life of a bulk copy: its issue, its landing, and what completes with it.
//
// A copy into shared memory counts as a write of the agent of its mbarrier, from its issue on. A warp that
// reads without having waited for that mbarrier races with it. The bytes land at once, or (late copies) when
// a warp asks for the phase.
#include "bulk.hpp"

#include <algorithm>

#include "async.hpp"

namespace ptx {
namespace {

void set_init(Cta& c, u32 offset, u32 n, bool known) {
  for (u32 k = 0; k < n;) {
    const u32 at = (offset + k) & 15, step = std::min(16 - at, n - k);
    const u16 mask = static_cast<u16>(((1u << step) - 1) << at);
    u16& word = c.shared_init[(offset + k) >> 4];
    word = known ? word | mask : word & static_cast<u16>(~mask);
    k += step;
  }
}

// Adds, or whatever the reduction is, the elements at `from` to those at `to`.
void reduce(Warp& w, const BulkCopy& q, u64 key, u8* to, const u8* from, u32 nbytes) {
  const u32 size = q.element >> 8;
  std::unique_lock<std::mutex> lock;
  if (!q.to_shared && w.worker->launch->config.threads > 1)
    lock = std::unique_lock(w.worker->launch->atomic_mutex[key >> 4 & 63]);
  for (u32 k = 0; k + size <= nbytes; k += size) {
    u64 a = 0, b = 0;
    std::memcpy(&a, to + k, size);
    std::memcpy(&b, from + k, size);
    const u64 r =
        reduce_value(static_cast<Operation>(q.reduction), static_cast<ValueType>(q.element & 255), a, b, 0);
    std::memcpy(to + k, &r, size);
  }
}

// Moves the bytes.
void transfer(Warp& w, BulkCopy& q) {
  std::vector<Cta>& ctas = w.cta->cluster->ctas;
  auto shared = [&](u64 a) -> u8* {
    Cta& c = ctas[static_cast<u32>(a) >> RANK_SHIFT];
    return &c.shared[static_cast<u32>(a) - c.base];
  };
  for (auto& p : q.pieces) {
    if (p.fill && !q.to_shared) continue;
    u8* to = q.to_shared ? shared(p.to) : reinterpret_cast<u8*>(p.to);
    if (p.fill) {
      for (u32 k = 0; k < p.nbytes; k++) to[k] = static_cast<u8>(q.fill_value >> (8 * (k & 3)));
    } else {
      const u8* from;
      if (!q.immediate.empty()) from = q.immediate.data() + p.from;
      else if (q.from_shared) from = shared(p.from);
      else from = reinterpret_cast<const u8*>(p.from);
      if (q.reduction < 0) std::memcpy(to, from, p.nbytes);
      else reduce(w, q, p.to, to, from, p.nbytes);
    }
    if (q.to_shared) {
      Cta& c = ctas[static_cast<u32>(p.to) >> RANK_SHIFT];
      set_init(c, static_cast<u32>(p.to) - c.base, p.nbytes, true);
    }
  }
  q.landed = true;
}

// An asynchronous read of shared memory lasts from its issue to the wait. No write since the issue may be
// unordered with it, and a later write must be ordered after the wait.
void read_span(Warp& w, Cta& c, u32 offset, u32 n, const u32* issue_clock) {
  const auto check = [&](const Cell& cell) {
    if (cell.clock > issue_clock[cell.agent])
      shared_race(w, c, offset, n, "written while an asynchronous operation, not waited for, reads it",
                  cell.agent, cell.pc);
  };
  for (u32 i = offset >> 2; i < (offset + n) >> 2; i++) each_owner(c, i, 15, check);
  race_read(w, c, offset, n);
}

void complete(Warp& w, Mbarrier& b, BulkCopy& q) {
  if (q.warp) {  // cp.async.mbarrier.arrive: the copies of the thread land, then it arrives
    u32 before[32] = {};
    before[q.lane] = q.group + 1;
    Warp& owner = *q.warp;
    const std::vector<u32> now(owner.clock, owner.clock + w.cta->cluster->clock_words);
    std::copy(q.clock.begin(), q.clock.end(), owner.clock);  // the copies count as of the arrival
    land_copies(owner, 1u << q.lane, before, true);
    std::copy(now.begin(), now.end(), owner.clock);
    join(b.current.data(), q.clock.data(), w.cta->cluster->clock_words);
    b.pending--;
    advance(*w.cta->cluster, b);
    return;
  }
  if (!q.landed) transfer(w, q);
  b.tx -= q.nbytes;
  if (q.clock_value) {
    b.current[b.agent] = std::max(b.current[b.agent], q.clock_value);
    b.current_near[b.agent] = b.current[b.agent];
  }
  if (q.from_shared || !q.immediate.empty())
    join(b.current.data(), q.clock.data(), w.cta->cluster->clock_words);
  advance(*w.cta->cluster, b);
}

}  // namespace

void finish_read(Warp& w, BulkCopy& q) {
  if (q.source_read) return;
  q.source_read = true;
  for (auto& p : q.pieces) {
    if (p.fill) continue;
    Cta& c = cta_of(w, static_cast<u32>(p.from));
    const u32 offset = static_cast<u32>(p.from) - c.base;
    if (w.worker->launch->race) read_span(w, c, offset, p.nbytes, q.clock.data());
    if (q.landed) continue;
    p.from = q.immediate.size();
    q.immediate.insert(q.immediate.end(), &c.shared[offset], &c.shared[offset] + p.nbytes);
  }
}

void finish_store(Warp& w, BulkCopy& q) {
  finish_read(w, q);
  if (!q.landed) transfer(w, q);
  u32& known = w.clock[q.agent];
  if (w.worker->launch->race) known = std::max(known, q.clock_value);
}

void launch_to_shared(Warp& w, std::shared_ptr<BulkCopy> q, u32 barrier, bool proxy) {
  Cluster& cl = *w.cta->cluster;
  const Launch& L = *w.worker->launch;
  Mbarrier& b = mbarrier_at(w, barrier, q->lane);
  if (L.race && proxy) {
    if (!b.fenced && b.init_clock > w.clock[cl.shared_proxy + b.init_agent]) {
      Fault f(EVO_PTX_PROXY,
              "an asynchronous copy completes on an mbarrier whose initialisation the async proxy may not "
              "see: fence.mbarrier_init (or fence.proxy.async) is missing after mbarrier.init",
              static_cast<int>(q->lane));
      throw f.against(agent_name(cl, b.init_agent), b.init_pc);
    }
  }
  if (L.race) {
    const u32 t = q->clock_value = ++cl.agent_clock[b.agent];
    b.copier = &w, b.copy_lane = q->lane, b.copy_pc = w.pc, b.copy_clock = t;
    for (auto& p : q->pieces) {
      if (!q->from_shared && q->immediate.empty() && !p.fill)
        global_async(w, p.from, p.nbytes, Access::READ, q->lane, {b.agent, t});
      Cta& c = cta_of(w, static_cast<u32>(p.to));
      const u32 o = static_cast<u32>(p.to) - c.base;
      for (u32 k = 0; k < p.nbytes;) {
        const u32 n = std::min<u32>(16 - ((o + k) & 15), p.nbytes - k);
        if (proxy)
          check_proxy(w, c, o + k, n,
                      "the async proxy overwrites what was written through the generic proxy without a "
                      "fence.proxy.async between");
        race_write(w, c, o + k, n, b.agent, t, CELL_ASYNC_PROXY);
        k += n;
      }
    }
  }
  for (auto& p : q->pieces) {
    Cta& c = cta_of(w, static_cast<u32>(p.to));
    const u32 o = static_cast<u32>(p.to) - c.base;
    if (q->reduction < 0) set_init(c, o, p.nbytes, false);
  }
  q->clock.assign(w.clock, w.clock + cl.clock_words);
  w.worker->totals.async_bytes += q->nbytes;
  b.in_flight.push_back(q);
  if (!L.late_copies) land(w, b);
}

void launch_to_global(Warp& w, std::shared_ptr<BulkCopy> q) {
  q->clock.assign(w.clock, w.clock + w.cta->cluster->clock_words);
  q->group = w.bulk_group[q->lane];
  w.worker->totals.async_bytes += q->nbytes;
  q->agent = bulk_agent(w);
  q->clock_value = ++w.cta->cluster->agent_clock[q->agent];
  const Access access = q->reduction < 0 ? Access::WRITE : Access::ATOMIC;
  for (auto& p : q->pieces)
    if (!p.fill) global_async(w, p.to, p.nbytes, access, q->lane, {q->agent, q->clock_value});
  if (!w.worker->launch->late_copies) transfer(w, *q);
  w.bulk.push_back(q);
}

void read_sources(Warp& w, const BulkCopy& q) {
  const Launch& L = *w.worker->launch;
  for (auto& p : q.pieces) {
    if (p.fill) continue;
    Cta& c = cta_of(w, static_cast<u32>(p.from));
    const u32 o = static_cast<u32>(p.from) - c.base;
    if (L.race) {
      race_read(w, c, o, p.nbytes);
      check_proxy(w, c, o, p.nbytes,
                  "the async proxy reads what was written through the generic proxy without a "
                  "fence.proxy.async between");
    }
    for (u32 k = 0; k < p.nbytes && L.init; k++)
      if (!(c.shared_init[(o + k) >> 4] >> ((o + k) & 15) & 1))
        uninitialised_shared(w, static_cast<u32>(p.from) + k, 1);
  }
}

void land(Warp& w, Mbarrier& b) {
  // Landing may complete the phase. Nothing more is issued meanwhile, so the list can go at once.
  std::vector<std::shared_ptr<BulkCopy>> list;
  list.swap(b.in_flight);
  for (auto& q : list) complete(w, b, *q);
}

void land_all(Warp& w) {
  const auto unread = std::find_if(w.bulk.begin(), w.bulk.end(), [](auto& q) { return !q->source_read; });
  if (unread != w.bulk.end() && w.worker->launch->race) {
    Fault f(EVO_PTX_RACE,
            "the thread exits while a bulk copy may still read its shared memory: cp.async.bulk.wait_group "
            "is missing",
            static_cast<int>((*unread)->lane));
    throw f.against("the copy", (*unread)->pc);
  }
  for (auto& q : w.bulk) finish_store(w, *q);
  w.bulk.clear();
}

void check_copies(Cluster& cl) {
  for (Cta& c : cl.ctas)
    for (auto& b : c.mbarriers) {
      if (!b->copier) continue;
      bool awaited = false;
      for (Cta& other : cl.ctas)
        for (Warp& w : other.warps) awaited |= w.clock[b->agent] >= b->copy_clock;
      if (awaited) continue;
      b->copier->pc = b->copy_pc;
      throw std::pair<Fault, Warp*>(
          Fault(EVO_PTX_RACE,
                "the CTA exits while a bulk copy may still write its shared memory: nobody has waited for "
                "the phase of the mbarrier that it completes on",
                static_cast<int>(b->copy_lane)),
          b->copier);
    }
}

}  // namespace ptx

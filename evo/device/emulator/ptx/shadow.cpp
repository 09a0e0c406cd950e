#include "shadow.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "memory.hpp"

namespace ptx {

GlobalShadow make_shadow(u64 nbytes) {
  GlobalShadow s;
  s.cells = nbytes / 4 + 2;
  auto make = [&] {
    void* p = std::calloc(s.cells, 8);  // untouched pages cost nothing
    if (!p) throw std::bad_alloc();
    return GlobalShadow::Cells(static_cast<std::atomic<u64>*>(p), std::free);
  };
  s.writes = make();
  s.reads = make();
  return s;
}

// ---- sets
constexpr size_t MAX_SETS = 1u << 20, MAX_STAMPS = 64;

std::vector<u64> StampSets::at(u64 cell) {
  std::lock_guard lock(mutex_);
  return *sets_[cell & ~STAMP_SET];
}

u64 StampSets::cell_of(std::vector<u64> stamps) {
  if (stamps.size() > MAX_STAMPS) stamps.erase(stamps.begin());
  if (stamps.size() < 2) return stamps.empty() ? 0 : stamps[0];
  std::lock_guard lock(mutex_);
  auto it = number_.find(stamps);
  if (it == number_.end()) {
    if (sets_.size() == MAX_SETS) {
      Stamp all;
      for (u64 s : stamps) all.bytes |= unpack(s).bytes;
      return pack(all);
    }
    it = number_.emplace(std::move(stamps), sets_.size()).first;
    sets_.push_back(&it->first);
  }
  return STAMP_SET | it->second;
}

// ---- accesses
namespace {

// Whether the clocks of the warp, from `part` on, cover the access.
bool covered(const Warp& w, const Stamp& s, u32 part) {
  if (s.cluster == w.cta->cluster->linear) return s.clock <= w.clock[part + s.agent];
  if (!w.foreign) return false;
  auto it = w.foreign->find(s.cluster);
  return it != w.foreign->end() && part + s.agent < it->second.size() &&
         s.clock <= it->second[part + s.agent];
}
bool ordered(const Warp& w, const Stamp& s) { return covered(w, s, 0); }

// One access of a warp to a region, cell by cell.
class Shadowed {
 public:
  Shadowed(Warp& w, GlobalRegion& r, u64 address, u32 n, Access access, Scope scope, const AsyncAgent* async)
      : w_(w), r_(r), launch_(*w.worker->launch), address_(address), n_(n), access_(access) {
    const u64 cluster = w.cta->cluster->linear;
    race_ = launch_.race && r.writable && cluster <= MAX_STAMP_CLUSTER;
    init_ = launch_.init && !r.initialised && (!writes(access) || access == Access::ATOMIC);
    const u32 agent = async ? async->agent : w.agent, clock = async ? async->clock : w.clock[agent];
    if (race_ && clock <= MAX_STAMP_CLOCK) mine_ = {clock, agent, cluster, scope, 0, async != nullptr};
  }

  void check() {
    const u64 offset = address_ - r_.address;
    const u64 first = offset >> 2, last = (offset + n_ - 1) >> 2;
    for (u64 c = first; c <= last; c++) {
      const u32 lo = c == first ? offset & 3 : 0, hi = c == last ? (offset + n_ - 1) & 3 : 3;
      mine_.bytes = ((2u << hi) - 1) & ~((1u << lo) - 1);
      std::atomic<u64>& written = r_.shadow.writes.get()[c];
      if (init_) check_initialised(written.load(std::memory_order_relaxed));
      if (writes(access_)) {
        update(written, [&](u64 cell) { return after_write(cell); });
        if (race_) update(r_.shadow.reads.get()[c], [&](u64 cell) { return without_readers(cell); });
      } else if (race_) {
        each(written.load(std::memory_order_relaxed),
             [&](const Stamp& s) { after_other(s, "read not ordered after a write"); });
        update(r_.shadow.reads.get()[c], [&](u64 cell) { return after_read(cell); });
      }
    }
  }

 private:
  template <class F>
  void each(u64 cell, F f) {
    if (!(cell & STAMP_SET)) {
      if (cell) f(unpack(cell));
    } else {
      for (u64 s : launch_.stamp_sets.at(cell)) f(unpack(s));
    }
  }

  template <class F>
  void update(std::atomic<u64>& at, F next) {
    u64 cell = at.load(std::memory_order_relaxed);
    if (launch_.config.threads == 1) {
      const u64 now = next(cell);
      if (now != cell) at.store(now, std::memory_order_relaxed);
    } else {
      while (!at.compare_exchange_weak(cell, next(cell), std::memory_order_relaxed)) {}
    }
  }

  void check_initialised(u64 cell);
  bool atomic_to(const Stamp& s) const;
  [[noreturn]] void fault(int kind, const Stamp& s, const std::string& what);
  void conflict(const Stamp& s, const char* what);
  void after_other(const Stamp& s, const char* what);
  u64 after_write(u64 cell);
  u64 after_read(u64 cell);
  u64 without_readers(u64 cell);
  u64 with_mine(std::vector<u64> others);

  Warp& w_;
  GlobalRegion& r_;
  Launch& launch_;
  const u64 address_;
  const u32 n_;
  const Access access_;
  bool race_, init_;
  Stamp mine_;
};

void Shadowed::check_initialised(u64 cell) {
  u32 known = 0;
  each(cell, [&](const Stamp& s) { known |= s.bytes; });
  if ((known & mine_.bytes) == mine_.bytes) return;
  const i64 offset = static_cast<i64>(address_ - r_.address);
  Fault f(EVO_PTX_UNINITIALISED, "read of " + std::to_string(n_) + " bytes of `" + r_.name +
                                     "` that nobody has written, at offset " + std::to_string(offset));
  throw f.at(r_.space, address_, n_, r_.name, offset);
}

// Whether both are strong, each at a scope that includes the other thread.
bool Shadowed::atomic_to(const Stamp& s) const {
  const Cluster& c = *w_.cta->cluster;
  const u32 per = c.agents / static_cast<u32>(c.ctas.size());
  const Scope between = s.cluster != c.linear           ? Scope::GPU
                        : s.agent / per != w_.cta->rank ? Scope::CLUSTER
                                                        : Scope::CTA;
  return std::min(mine_.scope, s.scope) >= between;
}

void Shadowed::fault(int kind, const Stamp& s, const std::string& what) {
  const Cluster& c = *w_.cta->cluster;
  const i64 offset = static_cast<i64>(address_ - r_.address);
  Fault f(kind, "race in global memory, `" + r_.name + "` + " + std::to_string(offset) + ": " + what);
  f.at(r_.space, address_, n_, r_.name, offset);
  throw f.against(s.cluster == c.linear
                      ? agent_name(c, s.agent)
                      : (c.ctas.size() > 1 ? "cluster " : "CTA ") + std::to_string(s.cluster),
                  -1);
}

// Faults if the access `s` touches the same bytes and nothing orders it.
void Shadowed::conflict(const Stamp& s, const char* what) {
  if (!(s.bytes & mine_.bytes) || !s.clock || ordered(w_, s) || atomic_to(s)) return;
  const bool narrow = mine_.scope != Scope::NONE && s.scope != Scope::NONE;
  fault(EVO_PTX_RACE, s, std::string(what) + (narrow ? ", and the scope of one leaves the other out" : ""));
}

// The same after a write, of which the caches of the reader have to know besides.
void Shadowed::after_other(const Stamp& s, const char* what) {
  conflict(s, what);
  if (!(s.bytes & mine_.bytes) || !s.clock) return;
  if (access_ == Access::CONSTANT_READ)
    fault(EVO_PTX_RACE, s, "ld.global.nc (or __ldg) of bytes that the same launch has written");
  if (mine_.async && !s.async && !covered(w_, s, w_.cta->cluster->global_proxy))
    fault(EVO_PTX_PROXY, s,
          "the async proxy uses what was written through the generic proxy without a fence.proxy.async for "
          "global memory between");
}

// The cell that holds what is left of the others, and this access.
u64 Shadowed::with_mine(std::vector<u64> others) {
  Stamp mine = mine_;
  std::erase_if(others, [&](u64 v) {
    const Stamp s = unpack(v);
    if (!s.same_access(mine)) return false;
    mine.bytes |= s.bytes;
    return true;
  });
  others.push_back(pack(mine));
  return launch_.stamp_sets.cell_of(std::move(others));
}

u64 Shadowed::after_write(u64 cell) {
  if (!cell) return pack(mine_);
  std::vector<u64> others;
  bool alone = true;
  each(cell, [&](Stamp s) {
    if (race_) after_other(s, "write not ordered after another write");
    s.bytes &= ~mine_.bytes;
    alone &= !s.bytes;
  });
  if (alone) return pack(mine_);
  each(cell, [&](Stamp s) {
    s.bytes &= ~mine_.bytes;
    if (s.bytes) others.push_back(pack(s));
  });
  return with_mine(std::move(others));
}

// A read that is ordered before this write need not be kept: whatever comes later meets the write.
u64 Shadowed::without_readers(u64 cell) {
  if (!cell) return 0;
  std::vector<u64> left;
  each(cell, [&](Stamp s) {
    conflict(s, "write not ordered after a read");
    if (ordered(w_, s)) s.bytes &= ~mine_.bytes;
    if (s.bytes) left.push_back(pack(s));
  });
  return launch_.stamp_sets.cell_of(std::move(left));
}

// A read replaces those before it that are ordered, unless it is stronger: less conflicts with it then.
u64 Shadowed::after_read(u64 cell) {
  if (!cell) return pack(mine_);
  const auto left = [&](const Stamp& s) {
    return mine_.scope <= s.scope && ordered(w_, s) ? s.bytes & ~mine_.bytes : s.bytes;
  };
  if (!(cell & STAMP_SET) && !left(unpack(cell))) return pack(mine_);
  std::vector<u64> others;
  each(cell, [&](Stamp s) {
    s.bytes = left(s);
    if (s.bytes) others.push_back(pack(s));
  });
  return with_mine(std::move(others));
}

}  // namespace

void check_shadow(Warp& w, GlobalRegion& r, u64 address, u32 n, Access access, Scope scope,
                  const AsyncAgent* async) {
  Shadowed(w, r, address, n, access, scope, async).check();
}

}  // namespace ptx

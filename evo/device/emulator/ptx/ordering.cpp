// Ordering through memory: fences, and what strong writes release and strong reads acquire.
//
// A strong write releases what its warp knew at its last fence; a releasing write what it knows now. A strong
// read that sees the write takes that over: at once if it acquires, else at the next fence. Each works up to
// the narrowest scope of the four: both accesses, the fence before the write and the one after the read.
#include "memory.hpp"

namespace ptx {
namespace {

constexpr u32 SCOPES = 3;  // CTA, CLUSTER, GPU, at index 0, 1, 2

// A copy that may be changed: the map itself if nobody else has it.
std::shared_ptr<Foreign> own_copy(ForeignPtr& p) {
  if (p && p.use_count() == 1) return std::const_pointer_cast<Foreign>(std::move(p));
  return p ? std::make_shared<Foreign>(*p) : std::make_shared<Foreign>();
}

void join_clock(std::vector<u32>& mine, const std::vector<u32>& other) {
  if (mine.size() < other.size()) mine.resize(other.size());
  join(mine.data(), other.data(), static_cast<u32>(other.size()));
}

void join_known(Known& a, const Known& b) {
  a.foreign = join(a.foreign, b.foreign);
  if (!b.clock || a.clock == b.clock) return;
  if (!a.clock) {
    a.clock = b.clock;
    return;
  }
  auto both = std::make_shared<std::vector<u32>>(*a.clock);
  join_clock(*both, *b.clock);
  a.clock = both;
}

Known known_by(const Warp& w) {
  return {std::make_shared<std::vector<u32>>(w.clock, w.clock + w.cta->cluster->clock_words), w.foreign};
}

void take(Warp& w, const Known& k) {
  const Cluster& c = *w.cta->cluster;
  if (k.clock) join(w.clock, k.clock->data(), c.clock_words);
  if (!k.foreign || k.foreign == w.foreign) return;
  const auto own = k.foreign->find(c.linear);
  if (own != k.foreign->end()) join(w.clock, own->second.data(), c.clock_words);
  w.foreign = join(w.foreign, k.foreign);
}

}  // namespace

ForeignPtr join(const ForeignPtr& a, const ForeignPtr& b) {
  if (!b || a == b) return a;
  if (!a) return b;
  auto out = std::make_shared<Foreign>(*a);
  for (auto& [cluster, clock] : *b) join_clock((*out)[cluster], clock);
  return out;
}

void join(std::unique_ptr<Fences>& a, const std::unique_ptr<Fences>& b) {
  if (!b) return;
  if (!a) a = std::make_unique<Fences>();
  for (u32 k = 0; k < SCOPES; k++) join_known(a->fenced[k], b->fenced[k]), join_known(a->seen[k], b->seen[k]);
}

ForeignPtr all_proxied(const ForeignPtr& clocks, u32 part) {
  if (!clocks) return nullptr;
  auto out = std::make_shared<Foreign>(*clocks);
  for (auto& [cluster, clock] : *out)
    if (clock.size() > part) join(clock.data() + part, clock.data(), static_cast<u32>(clock.size()) - part);
  return out;
}

void fence(Warp& w, Scope scope) {
  if (!w.worker->launch->race) return;
  if (!w.fences) w.fences = std::make_unique<Fences>();
  const u32 reach = static_cast<u32>(scope);
  for (u32 k = 0; k < reach; k++) {
    take(w, w.fences->seen[k]);
    w.fences->seen[k] = {};
  }
  const Known now = known_by(w);
  for (u32 k = 0; k < reach; k++) w.fences->fenced[k] = now;
  w.fence_scope = std::max(w.fence_scope, scope);
  w.clock[w.agent]++;
}

void publish(Warp& w, u64 key, const Strength& how) {
  Launch& launch = *w.worker->launch;
  if (!launch.race) return;
  const bool gives = how.releases || w.fences;
  if (!gives && (how.atomic || !launch.synced.load(std::memory_order_acquire))) return;
  const Cluster& cluster = *w.cta->cluster;
  Known given[SCOPES];
  if (how.releases) {
    given[0] = given[1] = given[2] = known_by(w);
    w.clock[w.agent]++;
  } else if (gives) {
    std::copy(w.fences->fenced, w.fences->fenced + SCOPES, given);
  }
  const u64 writer = cluster.linear << 16 | w.agent;
  std::lock_guard lock(launch.sync_mutex);
  if (!gives && !launch.sync.contains(key)) return;
  SyncVariable& v = launch.sync[key];
  // Who reads this value reads from this write, not from those before it, unless the write is atomic.
  if (!how.atomic && v.writer != writer) v = {};
  v.writer = how.atomic && v.writer != writer ? ~u64(0) : writer;
  join_known(v.in_cta[w.cta->linear], given[0]);
  if (how.scope >= Scope::CLUSTER && cluster.ctas.size() > 1)
    join_known(v.in_cluster[cluster.linear], given[1]);
  if (how.scope == Scope::GPU && given[2].clock) {
    auto all = own_copy(v.anywhere);
    if (given[2].foreign)
      for (auto& [other, clock] : *given[2].foreign) join_clock((*all)[other], clock);
    join_clock((*all)[cluster.linear], *given[2].clock);
    v.anywhere = std::move(all);
  }
  launch.synced.store(true, std::memory_order_release);
}

void acquire(Warp& w, u64 key, const Strength& how) {
  Launch& launch = *w.worker->launch;
  if (!launch.race || !launch.synced.load(std::memory_order_acquire)) return;
  Known found[SCOPES];
  {
    std::lock_guard lock(launch.sync_mutex);
    const auto it = launch.sync.find(key);
    if (it == launch.sync.end()) return;
    const SyncVariable& v = it->second;
    const auto near = v.in_cta.find(w.cta->linear);
    const auto cluster = v.in_cluster.find(w.cta->cluster->linear);
    if (near != v.in_cta.end()) found[0] = near->second;
    if (cluster != v.in_cluster.end()) found[1] = cluster->second;
    found[2].foreign = v.anywhere;
  }
  for (u32 k = 0; k < static_cast<u32>(how.scope); k++) {
    if (!found[k].clock && !found[k].foreign) continue;
    // The fence that should follow an atomic may come before it: reductions of libraries do so.
    if (how.acquires || (how.atomic && static_cast<u32>(w.fence_scope) > k)) {
      take(w, found[k]);
    } else {
      if (!w.fences) w.fences = std::make_unique<Fences>();
      join_known(w.fences->seen[k], found[k]);
    }
  }
}

}  // namespace ptx

#include <algorithm>

#include "own_shared.hpp"

namespace ptx {

std::string agent_name(const Cluster& c, u32 agent) {
  const u32 per = c.agents / static_cast<u32>(c.ctas.size());
  const u32 rank = agent / per, k = agent % per, warps = static_cast<u32>(c.ctas[0].warps.size());
  const u32 stores = warps + (c.worker->launch->program->mbarriers ? MBARRIER_AGENTS : 0);
  std::string s = k < warps    ? "warp " + std::to_string(k)
                  : k < stores ? "an asynchronous copy (mbarrier " + std::to_string(k - warps) + ")"
                               : "a bulk store of warp " + std::to_string(k - stores);
  if (c.ctas.size() > 1) s += " of CTA rank " + std::to_string(rank);
  return s;
}

// ---- shared: faults
static Fault shared_fault(int kind, u32 address, u32 n, const std::string& text) {
  Fault f(kind, text);
  f.at(Space::SHARED, address, n, "shared memory",
       static_cast<i64>(static_cast<i32>(address & ~RANK_MASK)) - SHARED_BASE);
  return f;
}
void bad_shared(const Warp& w, int kind, u32 address, u32 n, const char* what) {
  throw shared_fault(kind, address, n,
                     "shared memory access of " + std::to_string(n) + " bytes at " + hex(address) + " " +
                         what + " (the CTA has " + std::to_string(w.cta->shared_bytes) + " bytes from " +
                         hex(w.cta->base) + ")");
}
void uninitialised_shared(Warp& w, u32 address, u32 n, int lane) {
  Fault f = shared_fault(EVO_PTX_UNINITIALISED, address, n,
                         "read of " + std::to_string(n) +
                             " bytes of shared memory that nobody has written, at offset " +
                             std::to_string((address & ~RANK_MASK) - SHARED_BASE));
  f.lane = lane;
  if (!w.worker->launch->race) throw f;
  Cluster& c = *w.cta->cluster;
  if (!c.deferred) c.deferred = std::make_unique<Deferred>(Deferred{f, &w, w.pc, w.active});
}
void shared_race(const Warp& w, const Cta& c, u32 offset, u32 n, const char* what, u32 agent, u32 pc,
                 bool proxy) {
  Fault f = shared_fault(proxy ? EVO_PTX_PROXY : EVO_PTX_RACE, c.base + offset, n,
                         std::string(proxy ? "" : "race in shared memory at offset ") +
                             (proxy ? "" : std::to_string(offset) + ": ") + what);
  f.against(agent_name(*w.cta->cluster, agent), pc);
  throw f;
}

Read* open_reads(Warp& w, Cta& c) {
  std::vector<Read>& list = c.reads[w.agent];
  if (list.empty()) {
    list.resize(c.cells.size());
    c.readers.push_back(w.agent);
  }
  if (&c == w.cta) w.reads = list.data();
  return list.data();
}

// Whether two accesses of one warp, without a barrier between, are by lanes that conflict.
static bool apart(u32 before, u32 lane) {
  if (before == NO_LANE || lane == NO_LANE) return false;
  if (before == ANY_LANE && lane == ALL_LANES) return false;  // a fragment goes back to its place
  const auto all = [](u32 who) { return who == ALL_LANES || who == ANY_LANE; };
  return all(before) || all(lane) || (before != SEVERAL_LANES && before != lane);
}

// Whether two strong accesses to shared memory are atomic to each other.
static bool mutual(const Warp& w, u8 flags, u32 agent, bool is_strong, bool is_narrow) {
  if (!(flags & CELL_STRONG) || !is_strong) return false;
  if (!(flags & CELL_NARROW) && !is_narrow) return true;
  const Cluster& c = *w.cta->cluster;
  return agent / (c.agents / static_cast<u32>(c.ctas.size())) == w.cta->rank;
}
static bool mutual(const Warp& w, u8 flags, const Cell& cell) {
  return mutual(w, flags, cell.agent, cell.flags & CELL_STRONG, cell.flags & CELL_NARROW);
}

void explain_read(Warp& w, Cta& c, u32 offset, u32 n, u8 flags, u32 lane) {
  const u8 bytes = cell_bytes(offset, n);
  const auto explain = [&](const Cell& cell) {
    if (cell.flags & CELL_IN_FLIGHT)
      shared_race(w, c, offset, n, "read of bytes that an asynchronous copy, not waited for, writes",
                  cell.agent, cell.pc);
    if (cell.clock > w.clock[cell.agent] && !mutual(w, flags, cell))
      shared_race(w, c, offset, n, "read not ordered after a write", cell.agent, cell.pc);
    if (cell.agent == w.agent && cell.clock == w.clock[w.agent] && !flags && !(cell.flags & CELL_STRONG) &&
        apart(cell.lane, lane))
      shared_race(w, c, offset, n, "read of what another lane of the warp has written: __syncwarp is missing",
                  cell.agent, cell.pc);
  };
  for (u32 i = offset >> 2; i < (offset + n + 3) >> 2; i++) each_owner(c, i, bytes, explain);
}

// The clock at which `agent` last read any of `bytes` of cell i.
static u32 last_read(const Cta& c, u32 agent, u32 i, u8 bytes) {
  const Read& r = c.reads[agent][i];
  u32 clock = r.clock & bytes ? r.clock >> 4 : 0;
  if (!c.older_reads[agent].empty())
    for (u32 k = 0; k < 4; k++)
      if (bytes >> k & 1) clock = std::max(clock, c.older_reads[agent][i][k]);
  return clock;
}

void explain_write(Warp& w, Cta& c, u32 offset, u32 n, u8 flags, u32 lane) {
  const u8 bytes = cell_bytes(offset, n);
  for (u32 i = offset >> 2; i < (offset + n + 3) >> 2; i++) {
    for (u32 u : c.readers) {
      const Read& r = c.reads[u][i];
      if (mutual(w, flags, u, r.strong, r.narrow)) continue;
      if (u == w.agent && !(flags & CELL_STRONG) && (r.clock >> 4) == w.clock[u] && (r.clock & bytes) &&
          apart(r.lane, lane))
        shared_race(w, c, offset, n,
                    "write over what another lane of the warp has read: __syncwarp is missing", u, r.pc);
      if (u == w.agent) continue;
      if (last_read(c, u, i, bytes) > w.clock[u])
        shared_race(w, c, offset, n, "write not ordered after a read", u, r.pc);
    }
    each_owner(c, i, bytes, [&](const Cell& cell) {
      if (cell.flags & CELL_IN_FLIGHT)
        shared_race(w, c, offset, n, "write over bytes that an asynchronous copy, not waited for, writes",
                    cell.agent, cell.pc);
      if (cell.clock > w.clock[cell.agent] && !mutual(w, flags, cell))
        shared_race(w, c, offset, n, "write not ordered after another write", cell.agent, cell.pc);
    });
  }
}

void strong_read(Warp& w, Cta& c, Read* r, u32 offset, u32 n, u8 flags, u32 lane) {
  const u32 now = w.clock[w.agent] << 4, first = offset >> 2;
  const u8 bytes = cell_bytes(offset, n);
  for (u32 i = 0; i < (n + 3) >> 2; i++) {
    const Read old = r[i];
    const bool again = (old.clock & ~15u) == now;
    if (!again && (old.clock & 15 & ~bytes)) keep_older_read(c, w.agent, first + i, old.clock & 15 & ~bytes);
    r[i] = {(again ? old.clock : now) | bytes, w.pc & PC_BITS, again && !old.strong ? 0u : 1u,
            (again && old.narrow) || (flags & CELL_NARROW) ? 1u : 0u,
            (again && old.lane != lane ? static_cast<u32>(SEVERAL_LANES) : lane) & LANE_BITS};
  }
}

void keep_older_read(Cta& c, u32 agent, u32 i, u32 bytes) {
  auto& list = c.older_reads[agent];
  if (list.empty()) list.resize(c.cells.size());
  for (u32 k = 0; k < 4; k++)
    if (bytes >> k & 1) list[i][k] = c.reads[agent][i].clock >> 4;
}

void share_cell(Cta& c, u32 i, Cell now) {
  if (c.parts.empty()) c.parts.resize(c.cells.size());
  Cell& cell = c.cells[i];
  std::array<Cell, 4>& parts = c.parts[i];
  bool one_owner = true;
  for (u32 k = 0; k < 4; k++) {
    Cell& part = parts[k];
    const u8 bit = static_cast<u8>(1 << k);
    if (!(cell.flags & CELL_PARTS)) {
      part = cell;
      part.bytes &= bit;
    }
    if (now.bytes & bit) part = now, part.bytes = bit;
    if (part.bytes)
      one_owner &= part.agent == now.agent && part.clock == now.clock && part.flags == now.flags;
  }
  now.bytes |= cell.bytes;
  if (one_owner) {
    for (const Cell& part : parts)
      if (part.bytes && part.lane != now.lane) now.lane = SEVERAL_LANES;
  } else {
    now.flags |= CELL_PARTS;
  }
  cell = now;
}

void check_proxy(Warp& w, Cta& c, u32 offset, u32 n, const char* what) {
  const u32* fenced = w.clock + w.cta->cluster->shared_proxy;
  const u32 first = offset >> 2, end = (offset + n + 3) >> 2;
  const Cell* const cells = c.cells.data();
  u32 bad = 0;
  for (u32 i = first; i < (end - first == 4 && alike(cells + first, 4) ? first + 1 : end); i++) {
    const Cell& cell = cells[i];
    bad |= static_cast<u32>(cell.clock > fenced[cell.agent] && !(cell.flags & CELL_ASYNC_PROXY)) |
           (cell.flags & CELL_PARTS);
  }
  if (!bad) return;
  const auto check = [&](const Cell& cell) {
    if (!(cell.flags & CELL_ASYNC_PROXY) && cell.clock > fenced[cell.agent] &&
        cell.clock <= w.clock[cell.agent])
      shared_race(w, c, offset, n, what, cell.agent, cell.pc, true);
  };
  for (u32 i = first; i < end; i++) each_owner(c, i, cell_bytes(offset, n), check);
}

// ---- global
namespace {

[[noreturn]] void outside(Warp& w, u64 address, u32 n, bool write) {
  const auto& regions = w.worker->launch->regions;
  Fault f(EVO_PTX_OUT_OF_BOUNDS, "");
  std::string near;
  const GlobalRegion* best = nullptr;
  u64 distance = ~u64(0);
  for (auto& r : regions) {
    const u64 d = address < r.address               ? r.address - address
                  : address >= r.address + r.nbytes ? address - (r.address + r.nbytes)
                                                    : 0;
    if (d < distance) distance = d, best = &r;
  }
  if (best && distance < (u64(1) << 32)) {
    const i64 offset = static_cast<i64>(address - best->address);
    near = "; nearest is `" + best->name + "` (" + std::to_string(best->nbytes) + " bytes), at its offset " +
           std::to_string(offset);
    f.at(best->space, address, n, best->name, offset);
  } else {
    f.at(Space::GLOBAL, address, n, "", 0);
  }
  f.text = "global " + std::string(write ? "store" : "load") + " of " + std::to_string(n) + " bytes at " +
           hex(address) + " is outside every buffer" + near;
  throw f;
}

}  // namespace

static GlobalRegion& region_of(Warp& w, u64 address, u32 n, bool write) {
  auto& regions = w.worker->launch->regions;
  if (regions.empty()) outside(w, address, n, write);
  size_t k = w.worker->last_region;
  GlobalRegion* r = &regions[k];
  if (address - r->address >= r->nbytes) {
    auto it = std::upper_bound(regions.begin(), regions.end(), address,
                               [](u64 a, const GlobalRegion& g) { return a < g.address; });
    if (it == regions.begin()) outside(w, address, n, write);
    k = static_cast<size_t>(it - regions.begin()) - 1;
    r = &regions[k];
    w.worker->last_region = k;
  }
  const u64 offset = address - r->address;
  if (offset >= r->nbytes || n > r->nbytes - offset) outside(w, address, n, write);
  if (write && !r->writable) {
    Fault f(EVO_PTX_OUT_OF_BOUNDS,
            "store to `" + r->name + "` + " + std::to_string(offset) + ", which is read-only");
    throw f.at(r->space, address, n, r->name, static_cast<i64>(offset));
  }
  return *r;
}

// Runs `check`, which does not know the lane.
template <class F>
static auto of_lane(u32 lane, F check) {
  try {
    return check();
  } catch (Fault& f) {
    if (f.lane < 0 && lane < 32) f.lane = static_cast<int>(lane);
    throw;
  }
}

u8* global_slow(Warp& w, u64 address, u32 n, Access access, u32 lane, Scope scope) {
  return of_lane(lane, [&] {
    GlobalRegion& r = region_of(w, address, n, writes(access));
    if (address & (std::bit_ceil(n) - 1)) {
      const u64 offset = address - r.address;
      Fault f(EVO_PTX_MISALIGNED, "global " + std::string(writes(access) ? "store" : "load") + " of " +
                                      std::to_string(n) + " bytes at " + hex(address) + " (`" + r.name +
                                      "` + " + std::to_string(offset) + ") is misaligned");
      throw f.at(r.space, address, n, r.name, static_cast<i64>(offset));
    }
    if (r.shadow.cells) check_shadow(w, r, address, n, access, scope, nullptr);
    else w.worker->recent_address = r.address, w.worker->recent_nbytes = r.nbytes;
    return reinterpret_cast<u8*>(address);
  });
}

void range_slow(Warp& w, u64 address, u32 n, bool write, u32 lane) {
  of_lane(lane, [&] {
    const GlobalRegion& r = region_of(w, address, n, write);
    if (!r.shadow.cells) w.worker->recent_address = r.address, w.worker->recent_nbytes = r.nbytes;
    return nullptr;
  });
}

void async_slow(Warp& w, u64 address, u32 n, Access access, u32 lane, const AsyncAgent& as) {
  of_lane(lane, [&] {
    GlobalRegion& r = region_of(w, address, n, writes(access));
    const Scope scope = access == Access::ATOMIC ? Scope::GPU : Scope::NONE;
    if (r.shadow.cells) check_shadow(w, r, address, n, access, scope, &as);
    return nullptr;
  });
}

u8* local_at(Warp& w, u64 address, u32 n, bool write, u32 lane) {
  const u32 per = w.worker->launch->program->local_bytes;
  auto fault = [&](int kind, const std::string& what) {
    Fault f(kind, "local memory access of " + std::to_string(n) + " bytes at " + hex(address) + " " + what,
            static_cast<int>(lane));
    return f.at(Space::LOCAL, address, n, "local memory", static_cast<i64>(address) - LOCAL_BASE);
  };
  if (address < LOCAL_BASE || address >= per || n > per - address || w.cta->local.empty())
    throw fault(EVO_PTX_OUT_OF_BOUNDS, "is out of bounds");
  if (address & (n - 1)) throw fault(EVO_PTX_MISALIGNED, "is misaligned");
  const size_t at = (size_t(w.id) * 32 + lane) * per + address;
  u8* known = w.cta->local_init.data() + at;
  if (write) std::memset(known, 1, n);
  else if (w.worker->launch->init && std::memchr(known, 0, n))
    throw fault(EVO_PTX_UNINITIALISED, "reads bytes that the thread has not written");
  return w.cta->local.data() + at;
}

// ---- counters
namespace {

// How many words the busiest bank has, of those that the lanes of `part` ask for, `each` of them in a row;
// `words`: of all banks together.
u32 passes(const u32* address, u32 part, u32 each, u32& words) {
  u32 word[32], banks = 0;
  bool conflict = false;
  for (u32 m = part; m; m &= m - 1) {
    const u32 a = address[std::countr_zero(m)] >> 2;
    for (u32 x = a; x < a + each; x++) {
      const u32 bank = x & 31;
      conflict |= (banks >> bank & 1) && word[bank] != x;
      word[bank] = x;
      banks |= 1u << bank;
    }
  }
  if (!conflict) {
    words += static_cast<u32>(std::popcount(banks));
    return 1;
  }
  u8 used[32] = {};
  u32 distinct[32][8];  // words of a bank; more than 8 are counted but not compared
  u32 most = 1;
  for (u32 m = part; m; m &= m - 1) {
    const u32 a = address[std::countr_zero(m)] >> 2;
    for (u32 x = a; x < a + each; x++) {
      const u32 bank = x & 31;
      u32 i = 0;
      while (i < used[bank] && i < 8 && distinct[bank][i] != x) i++;
      if (i < used[bank] && i < 8) continue;
      if (used[bank] < 8) distinct[bank][used[bank]] = x;
      used[bank]++;
      words++;
      if (used[bank] > most) most = used[bank];
    }
  }
  return most;
}

// What lanes meet in the banks, and what that costs. It depends on where their words lie to each other, which
// is the same again and again: in a loop addresses move together.
struct Pattern {
  u32 lanes = 0, n = 0;
  u32 word[32];  // from that of the first lane on; 0 of lanes that do not take part
  u32 wavefronts, ideal;
};
constexpr u32 PATTERNS = 256;

const Pattern& pattern_of(u32 pc, const u32* address, u32 lanes, u32 n, u32 step) {
  static thread_local std::vector<Pattern> patterns(PATTERNS);
  Pattern& known = patterns[pc % PATTERNS];
  const u32 first = address[std::countr_zero(lanes)] >> 2;
  u32 word[32], differ = (known.lanes ^ lanes) | (known.n ^ n);
  for (u32 l = 0; l < 32; l++) {
    word[l] = ((address[l] >> 2) - first) & (0u - (lanes >> l & 1));
    differ |= word[l] ^ known.word[l];
  }
  if (!differ) return known;
  known = {lanes, n, {}, 0, 0};
  std::memcpy(known.word, word, sizeof word);
  u32 words = 0;
  for (u32 begin = 0; begin < 32; begin += step) {
    const u32 part = step == 32 ? lanes : lanes >> begin & ((1u << step) - 1);
    if (part) known.wavefronts += passes(address + begin, part, std::max(1u, n / 4), words);
  }
  known.ideal = (words + 31) / 32;
  return known;
}

}  // namespace

void count_shared(Warp& w, const u32* address, u32 lanes, u32 n, bool write) {
  Count& count = w.worker->counts[w.pc];
  const u32 total = static_cast<u32>(std::popcount(lanes)) * n;
  (write ? w.worker->totals.shared_written : w.worker->totals.shared_read) += total;
  // The frequent cases without a conflict: no two lanes (of a quarter, for 16 bytes) use the same bank.
  if (lanes == FULL && n == 4) {
    u32 banks = 0;
    for (u32 l = 0; l < 32; l++) banks |= 1u << (address[l] >> 2 & 31);
    if (banks == FULL) {
      count.wavefronts++, count.ideal++;
      return;
    }
  } else if (lanes == FULL && n == 16) {
    u32 groups = 0;
    for (u32 l = 0; l < 32; l++) groups |= 1u << ((address[l] >> 4 & 7) | (l & 24));
    if (groups == FULL) {
      count.wavefronts += 4, count.ideal += 4;
      return;
    }
  }
  // 16-byte accesses go a quarter of a warp at a time, 8-byte ones a half. Each pass takes as long as its
  // busiest bank.
  const u32 step = n >= 16 ? 8 : n == 8 ? 16 : 32;
  if (lanes == FULL) {  // all lanes the same bytes: no conflict either
    u32 differ = 0;
    for (u32 l = 0; l < 32; l++) differ |= address[l] ^ address[0];
    if (!differ) {
      count.wavefronts += 32 / step;
      count.ideal += (32 / step * std::max(1u, n / 4) + 31) / 32;
      return;
    }
  }
  const Pattern& found = pattern_of(w.pc, address, lanes, n, step);
  count.wavefronts += found.wavefronts;
  count.ideal += found.ideal;
}

void count_global(Warp& w, const u64* address, u32 lanes, u32 n, bool write) {
  Count& count = w.worker->counts[w.pc];
  const u64 total = u64(std::popcount(lanes)) * n;
  (write ? w.worker->totals.global_written : w.worker->totals.global_read) += total;
  count.bytes += total;
  u64 sector[64];
  u32 found = 0;
  u64 newest = ~u64(0);
  bool sorted = true;
  each_lane(lanes, [&](u32 l) {
    for (u64 s = address[l] >> 5; s <= (address[l] + n - 1) >> 5; s++) {
      if (s == newest || found == 64) continue;
      if (newest != ~u64(0) && s < newest) sorted = false;
      sector[found++] = newest = s;
    }
  });
  if (!sorted) {
    std::sort(sector, sector + found);
    found = static_cast<u32>(std::unique(sector, sector + found) - sector);
  }
  count.sectors += found;
  (write ? w.worker->totals.sectors_written : w.worker->totals.sectors_read) += found;
}

}  // namespace ptx

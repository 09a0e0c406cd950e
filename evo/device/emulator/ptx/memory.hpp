// Every access of a kernel to memory: where it lands, whether it is allowed, and what the race detector
// remembers of it.
//
// Races are found by vector clocks. Agents are the warps of the cluster and, for asynchronous writes, the
// mbarrier on which they complete. An earlier access by agent u at its clock t is ordered before warp w if
// and only if t <= w.clock[u].
#pragma once
#include "machine.hpp"

namespace ptx {

// CONSTANT_READ: ld.global.nc. Strong: volatile, relaxed, acquire, release.
enum class Access : u8 { READ, CONSTANT_READ, WRITE, STRONG_READ, STRONG_WRITE, ATOMIC };
constexpr bool writes(Access a) {
  return a == Access::WRITE || a == Access::STRONG_WRITE || a == Access::ATOMIC;
}
constexpr bool strong(Access a) { return a >= Access::STRONG_READ; }

// How strong an access is, and what else it does.
struct Strength {
  Scope scope = Scope::NONE;
  bool acquires = false, releases = false, atomic = false;
};

// ---- faults (memory.cpp)
[[noreturn]] void bad_shared(const Warp& w, int kind, u32 address, u32 n, const char* what);
void uninitialised_shared(Warp& w, u32 address, u32 n, int lane = -1);  // may return: see Deferred
[[noreturn]] void shared_race(const Warp& w, const Cta& c, u32 offset, u32 n, const char* what, u32 agent,
                              u32 pc, bool proxy = false);
// Faults if the async proxy reads or overwrites what the generic proxy wrote, and no fence.proxy.async is on
// the way.
void check_proxy(Warp& w, Cta& c, u32 offset, u32 n, const char* what);
std::string agent_name(const Cluster& c, u32 agent);

// ---- shared memory
// Faults if the other CTA may not have started yet, or has exited (clusters.cpp).
void check_alive(const Warp& w, const Cta& c, u32 address);
// Remembers that the warp has used the shared memory of another CTA, which must not exit before that. `late`:
// what it does there may come later than its next instructions.
void visit(Warp& w, Cta& c, bool late);
// The same of an arrival at an mbarrier of that CTA.
void visit(Warp& w, Mbarrier& b);
// The CTA has exited: faults if that was not known to come after each visit.
void check_visits(Cta& c);
// The warp has waited for a cluster barrier: what came before the arrivals is over; what may come late only
// if they order memory.
void forget_visits(Cta& c);

inline Cta& cta_of(Warp& w, u32 address) {
  const u32 rank = address >> RANK_SHIFT;
  if (rank == w.cta->rank) return *w.cta;
  if (rank >= w.cta->cluster->ctas.size())
    bad_shared(w, EVO_PTX_OUT_OF_BOUNDS, address, 0, "names a CTA outside the cluster");
  Cta& c = w.cta->cluster->ctas[rank];
  check_alive(w, c, address);
  return c;
}

// The byte offset in c.shared of `n` bytes at `address`, with bounds and alignment checked. n is a power of
// two up to 16.
inline u32 shared_offset(Warp& w, const Cta& c, u32 address, u32 n) {
  const u32 o = address - c.base;
  if (u64(o) + n > c.shared_bytes) bad_shared(w, EVO_PTX_OUT_OF_BOUNDS, address, n, "is out of bounds");
  if (o & (n - 1)) bad_shared(w, EVO_PTX_MISALIGNED, address, n, "is misaligned");
  return o;
}

inline u8 cell_bytes(u32 offset, u32 n) {
  return n >= 4 ? 15 : static_cast<u8>(((1u << n) - 1) << (offset & 3));
}

// Calls f(cell) for the owners of `bytes` of cell i.
template <class F>
inline void each_owner(const Cta& c, u32 i, u8 bytes, F f) {
  const Cell& cell = c.cells[i];
  if (cell.flags & CELL_PARTS) {
    for (const Cell& part : c.parts[i])
      if (part.bytes & bytes) f(part);
  } else if (cell.bytes & bytes) {
    f(cell);
  }
}

// The slow halves: they find out what is wrong and throw it. They return if nothing is wrong.
void explain_read(Warp& w, Cta& c, u32 offset, u32 n, u8 flags, u32 lane);
void explain_write(Warp& w, Cta& c, u32 offset, u32 n, u8 flags, u32 lane);
Read* open_reads(Warp& w, Cta& c);
// Remembers a strong read; a weak one of the same moment stays weak.
void strong_read(Warp& w, Cta& c, Read* r, u32 offset, u32 n, u8 flags, u32 lane);
// Some `bytes` of cell i that the agent has read are not among those that it reads now.
void keep_older_read(Cta& c, u32 agent, u32 i, u32 bytes);
// The write `now` goes into a part of cell i. The rest of the cell may have other owners.
void share_cell(Cta& c, u32 i, Cell now);

// Warp `w` reads bytes of `c` at `offset`: is the last write ordered before? Lanes of one warp have one
// clock. It rises at every barrier, __syncwarp included. What another lane wrote since then is not ordered
// either.
inline void race_read(Warp& w, Cta& c, u32 offset, u32 n, u8 flags = 0, u32 lane = NO_LANE) {
  const u32 first = offset >> 2, cells = (n + 3) >> 2;
  const Cell* cell = &c.cells[first];
  const u32 own = w.agent, clock = w.clock[own];
  u32 bad = 0;
  for (u32 i = 0; i < cells; i++)  // the warp's own writes since its clock rose are looked at, too
    bad |= (cell[i].flags & (CELL_IN_FLIGHT | CELL_PARTS)) |
           static_cast<u32>(cell[i].clock > w.clock[cell[i].agent] - (cell[i].agent == own));
  if (bad) [[unlikely]]
    explain_read(w, c, offset, n, flags, lane);
  Read* r = (c.rank == w.cta->rank && w.reads ? w.reads : open_reads(w, c)) + first;
  c.newest[own].add(clock, first, cells);
  const u32 now = clock << 4, pc = w.pc;
  if (flags) {
    strong_read(w, c, r, offset, n, flags, lane);
  } else if (n >= 4) {
    for (u32 i = 0; i < cells; i++) r[i] = {now | 15, pc & PC_BITS, 0, 0, lane & LANE_BITS};
  } else {
    const Read old = *r;
    const u32 bytes = cell_bytes(offset, n);
    const bool again = (old.clock & ~15u) == now;
    if (!again && (old.clock & 15 & ~bytes)) keep_older_read(c, w.agent, first, old.clock & 15 & ~bytes);
    *r = {again ? old.clock | bytes : now | bytes, pc & PC_BITS, 0, 0,
          (again && old.lane != lane ? static_cast<u32>(SEVERAL_LANES) : lane) & LANE_BITS};
  }
}

// Agent `as` writes at its clock `t`, issued by `w`: are all earlier accesses ordered before?
inline void race_write(Warp& w, Cta& c, u32 offset, u32 n, u32 as, u32 t, u8 flags, u32 lane = NO_LANE) {
  const u32 first = offset >> 2, cells = (n + 3) >> 2;
  const u8 bytes = cell_bytes(offset, n);
  Cell* cell = &c.cells[first];
  u32 bad = 0;
  for (u32 u : c.readers) {
    const u32 seen = w.clock[u] - (u == w.agent);  // the warp's own reads since then are looked at, too
    if (!c.newest[u].after(seen, first, cells)) continue;
    const Read* r = c.reads[u].data() + first;
    const bool own = u == w.agent && lane < ALL_LANES;  // what this very lane has read it may overwrite
    for (u32 i = 0; i < cells; i++)
      bad |= static_cast<u32>(r[i].clock > (seen << 4 | 15) && !(own && r[i].lane == lane));
  }
  for (u32 i = 0; i < cells; i++)
    bad |= (cell[i].flags & (CELL_IN_FLIGHT | CELL_PARTS)) |
           static_cast<u32>(cell[i].clock > w.clock[cell[i].agent]);
  if (bad) [[unlikely]]
    explain_write(w, c, offset, n, flags, lane);
  const bool same = cell->agent == as && cell->clock == t && cell->flags == flags;
  if (n < 4 && ((cell->flags & CELL_PARTS) ||
                ((cell->bytes & ~bytes) && !same && cell->clock > w.cta->cluster->base_clock))) {
    share_cell(c, first, {t, w.pc & PC_BITS, lane & LANE_BITS, static_cast<u16>(as), bytes, flags});
    return;
  }
  for (u32 i = 0; i < cells; i++) {
    const bool again = n < 4 && same;
    const u32 who = again && cell[i].lane != lane ? static_cast<u32>(SEVERAL_LANES) : lane;
    cell[i] = {t,
               w.pc & PC_BITS,
               who & LANE_BITS,
               static_cast<u16>(as),
               again ? static_cast<u8>(cell[i].bytes | bytes) : bytes,
               flags};
  }
}

template <Access ACCESS>
inline u8* shared_at(Warp& w, u32 address, u32 n, u32 lane = NO_LANE, Scope scope = Scope::NONE) {
  Cta& c = cta_of(w, address);
  if (&c != w.cta) [[unlikely]]
    visit(w, c, writes(ACCESS));
  const u32 o = shared_offset(w, c, address, n);
  const Launch& launch = *w.worker->launch;
  const u16 mask = static_cast<u16>(((1u << n) - 1) << (o & 15));
  // Races come first: bytes of a copy in flight count as uninitialised too, but the race is what is wrong.
  if (launch.race) {
    const u8 flags = !strong(ACCESS) ? 0 : scope == Scope::CTA ? CELL_STRONG | CELL_NARROW : CELL_STRONG;
    if constexpr (!writes(ACCESS)) race_read(w, c, o, n, flags, lane);
    else race_write(w, c, o, n, w.agent, w.clock[w.agent], flags, lane);
  }
  if constexpr (ACCESS != Access::WRITE && ACCESS != Access::STRONG_WRITE) {
    if (launch.init && (c.shared_init[o >> 4] & mask) != mask) uninitialised_shared(w, address, n);
  }
  if constexpr (writes(ACCESS)) c.shared_init[o >> 4] |= mask;
  return c.shared.data() + o;
}

// ---- global memory
// An access by the async proxy counts as one of this agent, at this clock.
struct AsyncAgent {
  u32 agent, clock;
};
// What the shadow of the region says of an access (shadow.cpp).
void check_shadow(Warp& w, GlobalRegion& r, u64 address, u32 n, Access access, Scope scope,
                  const AsyncAgent* async);
u8* global_slow(Warp& w, u64 address, u32 n, Access access, u32 lane, Scope scope = Scope::NONE);
// The two below, where the address is not in the region of the last access, or that has a shadow.
void range_slow(Warp& w, u64 address, u32 n, bool write, u32 lane);
void async_slow(Warp& w, u64 address, u32 n, Access access, u32 lane, const AsyncAgent& as);
// Whether `n` bytes lie in the region of the last access, and that has no shadow.
inline bool is_recent(const Warp& w, u64 address, u32 n) {
  const Worker& worker = *w.worker;
  const u64 offset = address - worker.recent_address;
  return offset < worker.recent_nbytes && n <= worker.recent_nbytes - offset;
}
// Checks the bounds of `n` bytes of any alignment.
inline void global_range(Warp& w, u64 address, u32 n, bool write, u32 lane) {
  if (write || !is_recent(w, address, n)) range_slow(w, address, n, write, lane);
}
// An access of the async proxy to `n` bytes of any alignment.
inline void global_async(Warp& w, u64 address, u32 n, Access access, u32 lane, const AsyncAgent& as) {
  if (writes(access) || !is_recent(w, address, n)) async_slow(w, address, n, access, lane, as);
}
// The host bytes of `n` bytes at `address`, checked.
inline u8* global_at(Warp& w, u64 address, u32 n, Access access, u32 lane, Scope scope = Scope::NONE) {
  if (!writes(access) && is_recent(w, address, n) && !(address & (std::bit_ceil(n) - 1)))
    return reinterpret_cast<u8*>(address);
  return global_slow(w, address, n, access, lane, scope);
}
u8* local_at(Warp& w, u64 address, u32 n, bool write, u32 lane);
// The bytes at a generic address, in the window that it lies in.
template <Access ACCESS>
inline u8* generic_at(Warp& w, u64 address, u32 n, u32 lane, Scope scope = Scope::NONE) {
  switch (address & WINDOW_MASK) {
    case SHARED_WINDOW: return shared_at<ACCESS>(w, static_cast<u32>(address), n, lane, scope);
    case LOCAL_WINDOW: return local_at(w, address & ~WINDOW_MASK, n, writes(ACCESS), lane);
    default: return global_at(w, address, n, ACCESS, lane, scope);
  }
}

// Ordering through memory (ordering.cpp): a strong write publishes, a strong read acquires what it sees.
void fence(Warp& w, Scope scope);
void publish(Warp& w, u64 key, const Strength& how);
void acquire(Warp& w, u64 key, const Strength& how);
void join(std::unique_ptr<Fences>& a, const std::unique_ptr<Fences>& b);
// The same clocks of other clusters, all of them covered by a proxy fence; `part`: where such clocks begin.
ForeignPtr all_proxied(const ForeignPtr& clocks, u32 part);
// After an access through which threads may meet: under some schedules others come between.
inline void yield(Warp& w) {
  w.polling = true;
  if (w.worker->launch->interleave && w.yields < MAX_YIELDS) w.yields++, w.yielded = true, w.quantum = 0;
}
inline u64 sync_key(const Warp& w, u64 address, bool shared) {
  return shared ? SHARED_WINDOW | w.cta->cluster->linear << 28 | (address & 0xfffffff) : address;
}

// ---- reductions (atom, red, bulk copies)
enum Operation : u8 { ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH, CAS };
constexpr const char* OPERATIONS[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"};
enum ValueType : u8 { T_U32, T_S32, T_U64, T_S64, T_F32, T_F64, T_F16, T_BF16, T_F16X2, T_BF16X2, T_B16 };
ValueType value_type(const std::string& word);
u64 reduce_value(Operation o, ValueType t, u64 old, u64 b, u64 c);

// ---- counters
// Count the wavefronts of a shared access of `n` bytes by each of `lanes` (the real ones, with bank
// conflicts, and the fewest possible), and the sectors of a global access.
void count_shared(Warp& w, const u32* address, u32 lanes, u32 n, bool write);
void count_global(Warp& w, const u64* address, u32 lanes, u32 n, bool write);

}  // namespace ptx

// The state of a launch: launch > worker > cluster > CTA > warp. A worker runs clusters one after another, or
// several in turns when CTAs wait for each other through global memory. The warps of a cluster take turns,
// and each runs until it blocks.
#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fault.hpp"
#include "program.hpp"
#include "shadow.hpp"

namespace ptx {

// Shared addresses: rank in the cluster << 24 | offset; the first KiB is reserved, as on sm_90.
constexpr u32 SHARED_BASE = 1024, RANK_SHIFT = 24, RANK_MASK = 0xff000000u, NO_RANK = 0xff;
constexpr u32 MAX_SHARED = 1u << 20;
// Generic windows, far from host pointers.
constexpr u64 SHARED_WINDOW = u64(1) << 60, LOCAL_WINDOW = u64(2) << 60, WINDOW_MASK = u64(15) << 60;
constexpr u32 LOCAL_BASE = 256;      // local addresses start here, so that null is outside
constexpr u32 MAX_YIELDS = 8;        // of a warp
constexpr u32 MBARRIER_AGENTS = 32;  // mbarriers told apart by the race detector, a CTA

struct Worker;
struct Cluster;
struct Warp;
struct Cta;
struct Launch;

// Clocks of other clusters that a warp has acquired through global memory: cluster -> clock of its agents.
// They never change.
using Foreign = std::unordered_map<u64, std::vector<u32>>;
using ForeignPtr = std::shared_ptr<const Foreign>;

// What is ordered before a point: a clock of the own cluster, and those of others.
struct Known {
  std::shared_ptr<const std::vector<u32>> clock;
  ForeignPtr foreign;
};
// By scope (CTA, cluster, GPU): what was known at the last fence, and what strong reads have seen since then,
// which the next fence takes over. Barriers hand both on.
struct Fences {
  Known fenced[3], seen[3];
};

// ---- memory
// One cell for 4 bytes of shared memory: the last write. With CELL_PARTS its bytes have several owners: see
// Cta::parts.
struct Cell {
  u32 clock = 0;
  u32 pc : 24 = 0, : 2, lane : 6 = 0;
  u16 agent = 0;
  u8 bytes = 0, flags = 0;
};
// CELL_NARROW: strong, but at the scope of the CTA.
enum CellFlag : u8 {
  CELL_IN_FLIGHT = 1,
  CELL_ASYNC_PROXY = 2,
  CELL_STRONG = 4,
  CELL_PARTS = 8,
  CELL_NARROW = 16
};
struct Read {
  u32 clock = 0;  // clock << 4 | bytes read
  u32 pc : 24 = 0, strong : 1 = 0, narrow : 1 = 0, lane : 6 = 0;
};
// The lane of an access, beside 0 to 31. ALL_LANES: it belongs to all (a fragment of a matrix, of which PTX
// leaves open what lies where). NO_LANE: lanes are not told apart. SEVERAL_LANES: parts of one cell.
// ANY_LANE: it reads what all lanes have written.
constexpr u32 PC_BITS = (1u << 24) - 1, LANE_BITS = 63;
enum Lane : u32 { ALL_LANES = 32, NO_LANE = 33, SEVERAL_LANES = 34, ANY_LANE = 35 };

// Where the newest reads of an agent lie: those at `clock` in the cells from `first` up to `end`, all others
// at `before` or earlier. It spares most writes to look at each cell that they overwrite.
struct NewestReads {
  u32 clock = 0, first = 0, end = 0, before = 0;
  void add(u32 now, u32 cell, u32 cells) {
    if (now != clock) before = clock > before ? clock : before, clock = now, first = cell, end = cell + cells;
    else first = cell < first ? cell : first, end = cell + cells > end ? cell + cells : end;
  }
  // Whether one of the cells may have been read after the clock `seen`.
  bool after(u32 seen, u32 cell, u32 cells) const {
    return before > seen || (clock > seen && first < cell + cells && cell < end);
  }
};

struct GlobalRegion {
  std::string name;
  u64 address = 0, nbytes = 0;
  bool writable = false, initialised = true;
  Space space = Space::GLOBAL;
  GlobalShadow shadow;
};

// What has been released into a variable through which threads synchronise, by how far it reaches.
struct SyncVariable {
  std::map<u64, Known> in_cta, in_cluster;  // by number
  ForeignPtr anywhere;
  u64 writer = ~u64(0);  // cluster << 16 | agent of the last write; ~0: several
};

// ---- asynchronous work
struct AsyncCopy {  // one cp.async of a warp
  u32 lanes, nbytes, pc;
  AsyncCopy() {}  // the arrays are filled for the lanes that copy, and not before
  std::array<u32, 32> to, group, arrival, valid;  // valid: bytes taken from the source, the rest is zero
  std::array<u64, 32> from;
};

struct BulkCopy;  // hopper.hpp
struct WgmmaOp;

// The last access of a warp to the shared memory of another CTA of the cluster.
struct Visit {
  u32 clock = 0, pc = 0;
};

struct Mbarrier {
  u32 address = 0;
  i64 expected = 0, pending = 0, tx = 0;
  u64 phase = 0;
  u32 agent = 0;  // async writes that complete here
  u32 init_agent = 0, init_clock = 0, init_pc = 0;
  bool fenced = false, alive = false;
  // The cluster barrier phase (from 1) whose arrival followed the fence: a warp that has waited for that
  // phase may use the mbarrier.
  u64 announced = 0;
  std::vector<u32> current, done;  // clocks: joined by the arrivals of this phase; what a waiter acquires
  std::vector<u32> current_near, done_near;  // the same, of arrivals from its own CTA
  // Arrivals from other CTAs, per agent of the cluster, until a warp of its own CTA has waited for the last
  // one's phase.
  std::vector<Visit> guests;
  u64 guest_phase = 0;
  ForeignPtr foreign;
  std::unique_ptr<Fences> fences;
  std::vector<std::shared_ptr<BulkCopy>> in_flight;  // not landed yet (late copies)
  bool asked = false;                                // for its phase since then: they land when asked again
  // The warp that issued the last copy that completes here; then its lane, its pc, and the clock of the
  // agent.
  Warp* copier = nullptr;
  u32 copy_lane = 0, copy_pc = 0, copy_clock = 0;
};

// ---- threads
enum Touched : u8 { WRITTEN = 1, READ = 2 };             // by ordinary instructions
enum InUse : u8 { AS_ACCUMULATOR = 1, AS_OPERAND = 2 };  // by a wgmma
enum class Status : u8 { READY, AT_BARRIER, AT_CLUSTER_BARRIER, AT_REGISTERS, DONE };

struct Warp {
  u8* registers = nullptr;
  u32* predicates = nullptr;
  const u32* ext = nullptr;
  Cta* cta = nullptr;
  Worker* worker = nullptr;
  Read* reads = nullptr;  // this warp's reads in its own CTA's shared memory, once there are any
  u32* clock = nullptr;   // happens-before clock; then the same for what proxy fences have covered

  u32 pc = 0, active = 0, live = 0, limit = ~0u;  // limit: lowest pc of the parked lanes that can run
  u32 blocked = 0;                                // lanes waiting for others of the warp
  u32 lane_pc[32];
  u32 id = 0, agent = 0;
  Status status = Status::READY;
  bool waiting = false;  // found an mbarrier phase incomplete: let others run at the next branch
  bool polling = false;  // read global memory that others may change: the same
  bool yielded =
      false;        // stopped after a strong access, so that others come between (see Launch::interleave)
  u32 yields = 0;   // how often
  u64 quantum = 0;  // instructions that this turn may have
  u32 barrier = 0;
  const Ins* barrier_ins = nullptr;
  u64 cluster_phase = 0, cluster_passed = 0;  // the phase arrived at; phases waited for
  bool cluster_arrived = false;
  u32 owned = 0, wanted = 0;  // registers a thread: has, and asks for at a setmaxnreg.inc; 0: not known
  u32 adjusted = 0, adjusted_pc = 0, adjusted_clock = 0;  // setmaxnregs so far; the last one

  std::vector<AsyncCopy> copies;
  std::array<u32, 32> group{}, arrivals{};  // of each thread's copies: commits, and cp.async.mbarrier.arrives
  std::vector<std::shared_ptr<BulkCopy>> bulk;  // bulk groups of the warp's threads
  std::array<u32, 32> bulk_group{};
  std::vector<std::unique_ptr<WgmmaOp>> wgmma;  // not waited for
  u32 wgmma_group = 0;
  bool fenced_wgmma = false;  // there was a wgmma.fence
  // Per tracked register: Touched since wgmma.fence; InUse by a wgmma in flight; the shape of the wgmma that
  // had it as an accumulator since wgmma.fence, 0 if none had.
  std::vector<u8> touched, pending;
  std::vector<u16> accumulated;
  std::vector<u32> returns[32];        // call stack of every lane
  std::vector<std::vector<u8>> saved;  // frames saved by recursive calls
  std::unique_ptr<Fences> fences;
  Scope fence_scope = Scope::NONE;  // the widest so far
  ForeignPtr foreign;

  u32* u(u32 slot) { return reinterpret_cast<u32*>(registers + slot); }
  u64* w(u32 slot) { return reinterpret_cast<u64*>(registers + slot); }
  float* f(u32 slot) { return reinterpret_cast<float*>(registers + slot); }
  void set_predicate(u32 p, u32 lanes, u32 value) {
    predicates[p] = (predicates[p] & ~lanes) | (value & lanes);
  }
};

struct Barrier {      // bar.sync 0..15
  u32 expected = 0;   // threads; 0: every live warp
  u32 arrived = 0;    // threads
  u64 warps[2] = {};  // that wait here
  std::vector<u32> clock;
  ForeignPtr foreign;
  std::unique_ptr<Fences> fences;
  u32 popc = 0, any = 0, all = FULL;
  bool in_use = false;
};

struct Cta {
  Cluster* cluster = nullptr;
  u32 rank = 0, index[3] = {};
  u64 linear = 0;
  u32 shared_bytes = 0, base = 0;  // base: shared address of byte 0
  std::vector<u8> shared;
  std::vector<u16> shared_init;  // a bit a byte
  std::vector<Cell> cells;
  std::vector<std::array<Cell, 4>> parts;  // of a cell, by byte; empty until one has several owners
  std::vector<std::vector<Read>> reads;    // per agent, empty until it reads here
  // Per agent and cell, by byte: the clock of an older read, of a byte that the last read left out.
  std::vector<std::vector<std::array<u32, 4>>> older_reads;
  std::vector<u32> readers;         // agents with a non-empty list
  std::vector<NewestReads> newest;  // per agent
  std::vector<Warp> warps;
  u32 warps_done = 0;
  // Per agent of the cluster, once there are any: those that are over when they were executed, and those that
  // may come late (stores, atomics).
  std::vector<Visit> visits, late_visits;
  u32 free_registers[4] = {};  // that setmaxnreg.dec gave back, by the quarter of the SM: warp % 4
  Barrier barriers[16];
  std::vector<std::unique_ptr<Mbarrier>> mbarriers;
  std::vector<u16> mbarrier_at;  // per 8 bytes: index + 1
  std::vector<u8> local, local_init;
  bool done() const { return warps_done == warps.size(); }
};

// A read of shared memory before any write is put aside until the CTA ends. If a warp writes there later and
// is not ordered after the read, then the barrier between the two is what is missing. That is the better
// thing to report.
struct Deferred {
  Fault fault;
  const Warp* warp;
  u32 pc, active;
};

struct Cluster {
  std::unique_ptr<Deferred> deferred;
  Worker* worker = nullptr;
  u64 linear = 0, position = 0;  // of all; in the order of their starts
  u32 agents = 0, clock_words = 0;
  // Where a clock has what proxy fences for shared and for global memory have covered; 0: no async proxy.
  u32 shared_proxy = 0, global_proxy = 0;
  u32 base_clock = 1;
  std::vector<u32> agent_clock;  // of the mbarrier agents
  std::vector<Cta> ctas;
  u32 barrier_arrived = 0;
  u64 barrier_phase = 0;
  std::vector<u32> barrier_clock, barrier_done;
  ForeignPtr barrier_foreign, barrier_foreign_done;
  std::unique_ptr<Fences> barrier_fences, barrier_fences_done;
  // Clocks of the warps at their arrival, in this and the last phase; and up to where it orders memory.
  std::vector<u32> arrived, arrived_done, handed, handed_done;
  bool progress = false;  // since the scheduler last looked
  u64 seed = 0;
  u64 instructions = 0;
  std::vector<u8> frames;  // registers of all warps
  std::vector<u32> predicates, clocks;
};

// ---- counting
struct Count {  // of one static instruction
  u64 executed = 0, lanes = 0, wavefronts = 0, ideal = 0, sectors = 0, bytes = 0;
};
struct Totals {
  u64 shared_read = 0, shared_written = 0, global_read = 0, global_written = 0, sectors_read = 0,
      sectors_written = 0;
  u64 async_bytes = 0, barrier_waits = 0, mbarrier_waits = 0, divergent = 0;
  u32 max_resident = 0;
};

struct Worker {
  Launch* launch = nullptr;
  std::vector<Count> counts;  // per pc
  Totals totals;
  u64 spent = 0;  // instructions not yet reported to the launch
  size_t last_region = 0;
  u64 recent_address = 0, recent_nbytes = 0;  // of the last region without a shadow
  u64 clock = 0;                              // %clock
};

struct Launch {
  const Program* program = nullptr;
  evo_ptx_launch config{};
  u32 cluster_shape[3] = {1, 1, 1};
  u32 threads_per_cta = 0, warps_per_cta = 0, ctas_per_cluster = 1;
  u32 shared_bytes = 0;
  u32 registers = 0;  // of a thread at its start; 0: not known
  bool init = true, race = true, late_copies = false, late_wgmma = false;
  bool interleave = false;  // a warp stops after its first strong accesses, and other CTAs start meanwhile
  std::vector<u8> params;
  u64 param_address = 0;              // of the parameter block, aligned to 128
  std::vector<GlobalRegion> regions;  // sorted by address
  std::vector<u64> symbol_address;    // per Module::variables
  // Clusters have positions in the order in which they start: the next one's, and that of the first that
  // failed.
  std::atomic<u64> next_start{0}, first_bad{~u64(0)}, spent{0}, finished{0};
  u64 clusters = 0, starts = 0;  // of the grid; that are to start
  std::mutex sync_mutex;
  std::atomic<bool> synced{false};
  std::unordered_map<u64, SyncVariable> sync;
  StampSets stamp_sets;
  std::mutex atomic_mutex[64];
};

// The agent that the bulk stores of a warp count as. The agents of a CTA are its warps, its mbarriers and
// these, as far as the program has them.
inline u32 bulk_agent(const Warp& w) {
  const Launch& L = *w.worker->launch;
  return w.agent + L.warps_per_cta + (L.program->mbarriers ? MBARRIER_AGENTS : 0);
}

// Runs `w` until it blocks, yields or has executed `quantum` instructions. Throws Fault.
void run_warp(Warp& w, u64 quantum);

// ---- small services
inline void join(u32* a, const u32* b, u32 n) {
  for (u32 i = 0; i < n; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
}
ForeignPtr join(const ForeignPtr& a, const ForeignPtr& b);

template <class F>
inline void each_lane(u32 lanes, F f) {
  for (; lanes; lanes &= lanes - 1) f(static_cast<u32>(std::countr_zero(lanes)));
}

std::string hex(u64 v);

}  // namespace ptx

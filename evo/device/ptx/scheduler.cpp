#include "scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "hopper.hpp"
#include "barriers.hpp"
#include "wgmma.hpp"

namespace ptx {
namespace {

constexpr u64 QUANTUM = 200000;              // warp instructions before others of the CTA get a turn
constexpr u64 CLUSTER_TURN = 4u << 20;       // before a CTA is put aside for others
constexpr u64 MEMORY_LIMIT = u64(700) << 20; // of all CTAs alive
constexpr u32 IDLE_ROUNDS = 20000;           // rounds of nothing but polling before it is called a deadlock

u32 up(u32 x, u32 align) { return (x + align - 1) / align * align; }

u64 random_of(u64& seed) {  // splitmix64
  u64 z = (seed += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// ------------------------------------------------------------------------------------------ setting up
struct Refused {
  int kind;
  std::string text;
};

GlobalShadow make_shadow(u64 nbytes) {
  GlobalShadow s;
  s.cells = nbytes / 4 + 2;
  auto make = [&] {
    void* p = std::calloc(s.cells, 8);  // untouched pages cost nothing
    if (!p) throw std::bad_alloc();
    return std::unique_ptr<std::atomic<u64>, void (*)(void*)>(static_cast<std::atomic<u64>*>(p), std::free);
  };
  s.writes = make();
  s.reads = make();
  return s;
}

void prepare(Launch& L) {
  const Program& p = *L.program;
  const evo_ptx_launch& c = L.config;
  auto refuse = [](const std::string& why) { throw Refused{EVO_PTX_REFUSED, why}; };
  if (!p.unsupported.empty()) throw Refused{EVO_PTX_UNSUPPORTED, p.unsupported};
  const u32 limits_grid[3] = {0x7fffffffu, 65535, 65535}, limits_block[3] = {1024, 1024, 64};
  static const char axis[] = "xyz";
  for (int i = 0; i < 3; i++) {
    if (c.grid[i] == 0 || c.grid[i] > limits_grid[i]) refuse("grid dimension " + std::string(1, axis[i]) + " = " + std::to_string(c.grid[i]) + " is outside 1.." + std::to_string(limits_grid[i]));
    if (c.block[i] == 0 || c.block[i] > limits_block[i]) refuse("block dimension " + std::string(1, axis[i]) + " = " + std::to_string(c.block[i]) + " is outside 1.." + std::to_string(limits_block[i]));
  }
  const u64 threads = u64(c.block[0]) * c.block[1] * c.block[2];
  if (threads > 1024) refuse("a block has " + std::to_string(threads) + " threads, more than 1024");
  const Function& f = *p.entry;
  if (f.max_threads && threads > f.max_threads) refuse("a block has " + std::to_string(threads) + " threads, more than the kernel's launch bound " + std::to_string(f.max_threads));
  if (f.required_threads[0])
    for (int i = 0; i < 3; i++)
      if (f.required_threads[i] != c.block[i]) refuse("the kernel requires another block shape (.reqntid)");
  u64 ctas = 1;
  for (int i = 0; i < 3; i++) {
    L.cluster_shape[i] = c.cluster[i] ? c.cluster[i] : 1;
    if (f.required_cluster[0]) {
      if (c.cluster[i] > 1 && c.cluster[i] != f.required_cluster[i]) refuse("the kernel requires another cluster shape (.reqnctapercluster)");
      L.cluster_shape[i] = f.required_cluster[i] ? f.required_cluster[i] : 1;
    }
    if (L.cluster_shape[i] > 16) refuse("a cluster has at most 16 CTAs");
    if (c.grid[i] % L.cluster_shape[i]) refuse("the grid is not a multiple of the cluster in " + std::string(1, axis[i]));
    L.ctas_per_cluster = i ? L.ctas_per_cluster * L.cluster_shape[i] : L.cluster_shape[i];
    ctas *= c.grid[i];
  }
  if (L.ctas_per_cluster > 16) refuse("a cluster has at most 16 CTAs");
  if (ctas > (u64(1) << 40)) refuse("the grid is too large");
  L.clusters = ctas / L.ctas_per_cluster;
  L.threads_per_cta = static_cast<u32>(threads);
  L.warps_per_cta = up(L.threads_per_cta, 32) / 32;
  if (c.dynamic_smem > MAX_SHARED) refuse("too much dynamic shared memory");
  L.shared_bytes = p.dynamic_offset + c.dynamic_smem;
  if (L.shared_bytes > MAX_SHARED) refuse("too much shared memory");
  if (c.params_nbytes < p.param_nbytes) refuse("the parameter block has " + std::to_string(c.params_nbytes) + " bytes, the kernel takes " + std::to_string(p.param_nbytes));
  if (p.param_nbytes && !c.params) refuse("no parameter block");

  L.registers = up(c.registers ? c.registers : f.max_registers, 8);
  L.bounds = true;  // turning it off would risk the host process; it is nearly free
  L.init = c.checks & EVO_PTX_CHECK_INIT;
  L.race = c.checks & EVO_PTX_CHECK_RACE;
  L.late_copies = c.late_copies, L.late_wgmma = c.late_wgmma;

  // Regions: what the caller gave, the parameter block, module variables.
  L.params.assign(static_cast<const u8*>(c.params), static_cast<const u8*>(c.params) + p.param_nbytes);
  L.params.resize(p.param_nbytes + 128);
  auto add = [&](std::string name, u64 address, u64 nbytes, bool writable, bool initialised, Space space) {
    if (!nbytes) return;
    if (address + nbytes < address || (address + nbytes) & WINDOW_MASK) refuse("region `" + name + "` is not in the address range of the host");
    GlobalRegion r;
    r.name = std::move(name), r.address = address, r.nbytes = nbytes;
    r.writable = writable, r.initialised = initialised, r.space = space;
    if ((writable && L.race) || (!initialised && L.init)) r.shadow = make_shadow(nbytes);
    L.regions.push_back(std::move(r));
  };
  for (u64 i = 0; i < c.region_count; i++) {
    const evo_ptx_region& r = c.regions[i];
    add(r.name ? r.name : "", r.address, r.nbytes, r.writable, r.initialised, Space::GLOBAL);
  }
  // The block itself starts on 128 bytes, as __grid_constant__ tensor maps need.
  L.params.resize(L.params.size() + 128);
  u8* block = L.params.data() + (128 - reinterpret_cast<u64>(L.params.data()) % 128) % 128;
  std::memmove(block, c.params ? c.params : block, p.param_nbytes);
  L.param_address = reinterpret_cast<u64>(block);
  add("kernel parameters", L.param_address, p.param_nbytes, false, true, Space::PARAM);

  const Module& m = *p.module;
  L.symbol_address.assign(m.variables.size(), 0);
  for (size_t i = 0; i < m.variables.size(); i++) {
    const Variable& v = m.variables[i];
    if ((v.space != Space::GLOBAL && v.space != Space::CONST) || v.external) continue;
    L.symbol_memory.emplace_back(v.nbytes + 256);
    auto& memory = L.symbol_memory.back();
    u8* at = memory.data() + (256 - reinterpret_cast<u64>(memory.data()) % 256) % 256;
    std::memcpy(at, v.init.data(), std::min<u64>(v.init.size(), v.nbytes));
    L.symbol_address[i] = reinterpret_cast<u64>(at);
    add(v.name, L.symbol_address[i], v.nbytes, v.space == Space::GLOBAL, true, v.space);
  }
  for (size_t i = 0; i < m.variables.size(); i++)
    for (auto& a : m.variables[i].addresses) {
      auto it = m.variable_index.find(a.symbol);
      if (!L.symbol_address[i] || it == m.variable_index.end()) continue;
      const u64 value = L.symbol_address[it->second] + static_cast<u64>(a.offset);
      if (a.at + 8 <= m.variables[i].nbytes) std::memcpy(reinterpret_cast<u8*>(L.symbol_address[i]) + a.at, &value, 8);
    }
  std::sort(L.regions.begin(), L.regions.end(), [](auto& a, auto& b) { return a.address < b.address; });
  for (size_t i = 1; i < L.regions.size(); i++)
    if (L.regions[i - 1].address + L.regions[i - 1].nbytes > L.regions[i].address) refuse("regions `" + L.regions[i - 1].name + "` and `" + L.regions[i].name + "` overlap");
}

// ------------------------------------------------------------------------------------------ clusters
// The memory of a cluster, reused for the next one.
std::unique_ptr<Cluster> make_cluster(Worker& worker) {
  Launch& L = *worker.launch;
  const Program& p = *L.program;
  auto c = std::make_unique<Cluster>();
  c->worker = &worker;
  const u32 nw = L.warps_per_cta, n = L.ctas_per_cluster;
  c->agents = n * (nw + (p.mbarriers ? MBARRIER_AGENTS : 0));
  c->clock_words = up(c->agents, 16) * (p.async_proxy ? 2 : 1);
  c->agent_clock.assign(c->agents, 1);
  c->frames.resize(size_t(p.frame_bytes) * nw * n + 64);
  c->predicates.resize(size_t(p.predicates) * nw * n);
  c->clocks.resize(size_t(c->clock_words) * nw * n);
  c->ctas.resize(n);
  u8* frames = c->frames.data() + (64 - reinterpret_cast<u64>(c->frames.data()) % 64) % 64;
  for (u32 r = 0; r < n; r++) {
    Cta& cta = c->ctas[r];
    cta.cluster = c.get();
    cta.rank = r;
    cta.shared_bytes = L.shared_bytes;
    cta.base = r << RANK_SHIFT | SHARED_BASE;
    const u32 rounded = up(L.shared_bytes, 16) + 16;
    cta.shared.resize(rounded);
    cta.shared_init.resize(rounded / 16);
    if (L.race) {
      cta.cells.resize(rounded / 4);
      cta.reads.resize(c->agents);
    }
    cta.mbarrier_at.resize(p.mbarriers ? rounded / 8 : 0);
    cta.warps.resize(nw);
    if (p.local_bytes > LOCAL_BASE) {
      cta.local.resize(size_t(p.local_bytes) * 32 * nw);
      cta.local_init.resize(cta.local.size());
    }
    for (u32 i = 0; i < nw; i++) {
      Warp& w = cta.warps[i];
      const size_t k = size_t(r) * nw + i;
      w.registers = frames + k * p.frame_bytes;
      w.predicates = c->predicates.data() + k * p.predicates;
      w.clock = c->clocks.data() + k * c->clock_words;
      w.ext = p.ext.data();
      w.cta = &cta, w.worker = &worker;
      w.id = i;
      w.agent = r * (c->agents / n) + i;
      w.touched.resize(p.tracked), w.pending.resize(p.tracked), w.accumulated.resize(p.tracked);
    }
  }
  return c;
}

u64 cluster_memory(const Launch& L) {
  const Program& p = *L.program;
  const u64 shared = up(L.shared_bytes, 16) + 16;
  const u64 race = L.race ? shared / 4 * (sizeof(Cell) + sizeof(Read) * L.warps_per_cta) : 0;
  return L.ctas_per_cluster * (shared + race + u64(L.warps_per_cta) * (p.frame_bytes + 64 * u64(p.local_bytes) + 4096));
}

template <class F>
void fill(Warp& w, u32 slot, u32 width, F f) {
  for (u32 l = 0; l < 32; l++) {
    if (width == 64) w.w(slot)[l] = f(l);
    else w.u(slot)[l] = static_cast<u32>(f(l));
  }
}

u64 special(const Launch& L, const Cta& c, const Warp& w, u32 lane, const std::string& n) {
  const evo_ptx_launch& k = L.config;
  const u32 t = w.id * 32 + lane;
  const u32* cs = L.cluster_shape;
  auto axis = [&] { return n.back() == 'x' ? 0 : n.back() == 'y' ? 1 : 2; };
  if (n.starts_with("%tid.")) return axis() == 0 ? t % k.block[0] : axis() == 1 ? t / k.block[0] % k.block[1] : t / (k.block[0] * k.block[1]);
  if (n.starts_with("%ntid.")) return k.block[axis()];
  if (n.starts_with("%ctaid.")) return c.index[axis()];
  if (n.starts_with("%nctaid.")) return k.grid[axis()];
  if (n == "%laneid") return lane;
  if (n == "%warpid") return w.id;
  if (n == "%nwarpid") return L.warps_per_cta;
  if (n == "%smid") return c.cluster->linear % (k.sm_count ? k.sm_count : 132);
  if (n == "%nsmid") return k.sm_count ? k.sm_count : 132;
  if (n == "%gridid") return 1;
  if (n == "%lanemask_eq") return 1u << lane;
  if (n == "%lanemask_le") return (2u << lane) - 1;
  if (n == "%lanemask_lt") return (1u << lane) - 1;
  if (n == "%lanemask_ge") return ~((1u << lane) - 1);
  if (n == "%lanemask_gt") return ~((2u << lane) - 1);
  if (n.starts_with("%cluster_ctaid.")) return c.index[axis()] % cs[axis()];
  if (n.starts_with("%cluster_nctaid.")) return cs[axis()];
  if (n.starts_with("%clusterid.")) return c.index[axis()] / cs[axis()];
  if (n.starts_with("%nclusterid.")) return k.grid[axis()] / cs[axis()];
  if (n == "%cluster_ctarank") return c.rank;
  if (n == "%cluster_nctarank") return L.ctas_per_cluster;
  if (n == "%is_explicit_cluster") return L.ctas_per_cluster > 1;
  if (n == "%dynamic_smem_size") return k.dynamic_smem;
  if (n == "%total_smem_size") return L.shared_bytes;
  if (n == "%aggr_smem_size") return L.shared_bytes;
  if (n == "%reserved_smem_offset_begin" || n == "%reserved_smem_offset_0") return 0;
  if (n == "%reserved_smem_offset_end" || n == "%reserved_smem_offset_cap") return SHARED_BASE;
  if (n == "%current_graph_exec") return 0;
  throw Refused{EVO_PTX_UNSUPPORTED, "special register " + n};
}

// Constants and whatever does not change from one cluster to the next.
void fill_constants(Cluster& c) {
  Launch& L = *c.worker->launch;
  const Program& p = *L.program;
  for (Cta& cta : c.ctas)
    for (Warp& w : cta.warps) {
      for (auto& f : p.fills) {
        u64 v = f.value;
        switch (f.kind) {
          case Fill::PARAM: {
            const u32 n = f.index & 0x7f;
            v = 0;
            std::memcpy(&v, reinterpret_cast<const u8*>(L.param_address) + f.value, n);
            if ((f.index & 0x80) && n < 8) v = static_cast<u64>(static_cast<i64>(v << (64 - 8 * n)) >> (64 - 8 * n));
            break;
          }
          case Fill::PARAM_ADDRESS: v = L.param_address + f.value; break;
          case Fill::SYMBOL_ADDRESS: v = L.symbol_address[f.index] + f.value; break;
          case Fill::SHARED_ADDRESS: v = cta.base + f.value; break;
          case Fill::DYNAMIC_SHARED: v = cta.base + p.dynamic_offset + f.value; break;
          default: break;
        }
        fill(w, f.slot, f.width, [&](u32) { return v; });
      }
      for (auto& s : p.specials)
        if (s.width > 1 && !s.name.starts_with("%ctaid.") && !s.name.starts_with("%clusterid.") && s.name != "%smid")
          fill(w, s.slot, s.width, [&](u32 l) { return special(L, cta, w, l, s.name); });
      w.predicates[0] = 0, w.predicates[1] = FULL;
    }
}

void start(Cluster& c, u64 linear) {
  Launch& L = *c.worker->launch;
  const Program& p = *L.program;
  c.linear = linear;
  c.deferred = nullptr;
  c.barrier_arrived = 0, c.barrier_phase = 0;
  c.barrier_clock.assign(c.clock_words, 0), c.barrier_done.assign(c.clock_words, 0);
  c.barrier_foreign = c.barrier_foreign_done = nullptr;
  c.instructions = 0;
  c.seed = L.config.seed * 0x9e3779b97f4a7c15ull + linear;
  // Clocks go on rising from one cluster to the next, so that what the last one left in the cells counts as ordered.
  if (c.base_clock > (1u << 26)) {
    for (Cta& cta : c.ctas) {
      std::fill(cta.cells.begin(), cta.cells.end(), Cell{});
      for (auto& r : cta.reads) std::fill(r.begin(), r.end(), Read{});
    }
    c.base_clock = 1;
  }
  const u32 base = c.base_clock;
  std::fill(c.clocks.begin(), c.clocks.end(), base);
  std::fill(c.agent_clock.begin(), c.agent_clock.end(), base);
  const u32* cs = L.cluster_shape;
  const u32* grid = L.config.grid;
  const u64 nx = grid[0] / cs[0], ny = grid[1] / cs[1];
  const u32 ci[3] = {static_cast<u32>(linear % nx), static_cast<u32>(linear / nx % ny), static_cast<u32>(linear / nx / ny)};
  for (Cta& cta : c.ctas) {
    const u32 ri[3] = {cta.rank % cs[0], cta.rank / cs[0] % cs[1], cta.rank / cs[0] / cs[1]};
    for (int i = 0; i < 3; i++) cta.index[i] = ci[i] * cs[i] + ri[i];
    cta.linear = cta.index[0] + u64(grid[0]) * (cta.index[1] + u64(grid[1]) * cta.index[2]);
    std::memset(cta.shared.data(), 0xcd, cta.shared.size());
    std::memset(cta.shared_init.data(), 0, cta.shared_init.size() * 2);
    for (auto& m : cta.mbarriers)
      if (m->alive) cta.mbarrier_at[(m->address - cta.base) >> 3] = 0;
    cta.mbarriers.clear();
    std::fill(std::begin(cta.barriers), std::end(cta.barriers), Barrier{});
    cta.warps_done = 0;
    std::fill(std::begin(cta.free_registers), std::end(cta.free_registers), 0);
    if (!cta.local.empty()) {
      std::memset(cta.local.data(), 0xcd, cta.local.size());
      std::memset(cta.local_init.data(), 0, cta.local_init.size());
    }
    for (Warp& w : cta.warps) {
      const u32 threads = L.threads_per_cta - w.id * 32;
      w.live = w.active = threads >= 32 ? FULL : (1u << threads) - 1;
      w.pc = p.start, w.limit = ~0u, w.blocked = 0;
      w.status = Status::READY;
      w.waiting = w.polling = false;
      w.cluster_phase = 0, w.cluster_passed = 0, w.cluster_arrived = false;
      w.owned = w.wanted = L.registers, w.adjusted = 0;
      w.copies.clear(), w.bulk.clear(), w.wgmma.clear();
      w.group.fill(0), w.bulk_group.fill(0);
      w.wgmma_group = 0, w.fenced_wgmma = false;
      std::fill(w.pending.begin(), w.pending.end(), 0);
      for (auto& r : w.returns) r.clear();
      w.saved.clear();
      w.fence_clock.clear();
      w.foreign = w.fence_foreign = nullptr;
      std::memset(w.registers, 0, p.register_bytes);
      std::memset(w.predicates + 2, 0, 4 * (p.predicates - 2));
      w.clock[w.agent] = base + 1;
      for (auto& s : p.specials)
        if (s.width > 1 && (s.name.starts_with("%ctaid.") || s.name.starts_with("%clusterid.") || s.name.starts_with("%cluster_ctaid.") || s.name == "%smid"))
          fill(w, s.slot, s.width, [&](u32 l) { return special(L, cta, w, l, s.name); });
    }
  }
}

void finish(Cluster& c) {
  u32 top = c.base_clock;
  for (u32 v : c.clocks) top = std::max(top, v);
  for (u32 v : c.agent_clock) top = std::max(top, v);
  c.base_clock = top + 1;
}

// ------------------------------------------------------------------------------------------ running
enum class Turn { DONE, POLLING, BUSY };

std::string waits_at(const Warp& w) {
  switch (w.status) {
    case Status::AT_BARRIER: return "barrier " + std::to_string(w.barrier);
    case Status::AT_CLUSTER_BARRIER: return "barrier.cluster";
    case Status::AT_REGISTERS: return "setmaxnreg.inc for " + std::to_string(w.wanted) + " registers a thread";
    default: return "an mbarrier";
  }
}

[[noreturn]] void deadlock(Cluster& c) {
  const Program& p = *c.worker->launch->program;
  std::vector<Warp*> waiting;
  for (Cta& cta : c.ctas)
    for (Warp& w : cta.warps)
      if (w.status != Status::DONE) waiting.push_back(&w);
  // Who waits for registers is told first: the others only wait for what those would do.
  const auto starved = [](const Warp* w) { return w->status == Status::AT_REGISTERS; };
  std::stable_partition(waiting.begin(), waiting.end(), starved);
  Warp& first = *waiting.front();
  std::string text = "deadlock: nobody can move;";
  if (starved(&first)) {
    u32 lack = 0;
    for (u32 quarter = 0; quarter < 4; quarter++) {
      u32 wanted = 0;
      for (const Warp& w : first.cta->warps)
        if (starved(&w) && w.id % 4 == quarter) wanted += (w.wanted - w.owned) * 32;
      if (wanted) lack += wanted - first.cta->free_registers[quarter];
    }
    text = "deadlock: " + std::to_string(lack) + " registers lack, which nobody gives back;";
  }
  for (size_t i = 0; i < std::min<size_t>(waiting.size(), 4); i++) {
    const Warp& w = *waiting[i];
    const u32 at = w.status == Status::READY || w.pc == 0 ? w.pc : w.pc - 1;
    const Statement& s = *p.sources[p.code[at].source].statement;
    text += " warp " + std::to_string(w.id) + (c.ctas.size() > 1 ? " of CTA rank " + std::to_string(w.cta->rank) : "") + " waits at " + waits_at(w) + " (" + place_of(*p.module, s) + ");";
  }
  if (waiting.size() > 4) text += " and " + std::to_string(waiting.size() - 4) + " more warps";
  else text.pop_back();
  if (first.status != Status::READY && first.pc > 0) first.pc--;
  throw std::pair<Fault, Warp*>(Fault(EVO_PTX_DEADLOCK, text), &first);
}

void charge(Worker& worker) {
  Launch& L = *worker.launch;
  if (worker.spent) {
    const u64 all = L.spent.fetch_add(worker.spent, std::memory_order_relaxed) + worker.spent;
    worker.spent = 0;
    if (L.config.instruction_budget && all > L.config.instruction_budget)
      throw Fault(EVO_PTX_RUNAWAY, "runaway: the launch has executed " + std::to_string(all) + " warp instructions, more than its budget of " + std::to_string(L.config.instruction_budget));
  }
  if (L.config.abort_flag && *L.config.abort_flag) throw Fault(EVO_PTX_ABORTED, "the launch was interrupted");
}

// Lets every warp of the cluster run until it blocks; again and again until the turn is over.
Turn take_turn(Cluster& c, Warp*& running) {
  Worker& worker = *c.worker;
  Launch& L = *worker.launch;
  const u32 order = L.config.order;
  const u32 nw = L.warps_per_cta, total = nw * L.ctas_per_cluster;
  const u64 until = c.instructions + CLUSTER_TURN;
  u64 quantum = QUANTUM;
  if (L.config.instruction_budget) quantum = std::clamp<u64>(L.config.instruction_budget / 4, 1000, QUANTUM);
  std::vector<u32> turn(total);
  for (u32 i = 0; i < total; i++) turn[i] = i;
  for (;;) {
    c.progress = false;
    u32 done = 0, ready = 0, polling = 0;
    const u64 before = c.instructions;
    if (order == EVO_PTX_ORDER_SEEDED)
      for (u32 i = total; i > 1; i--) std::swap(turn[i - 1], turn[random_of(c.seed) % i]);
    for (u32 i = 0; i < total; i++) {
      const u32 k = order == EVO_PTX_ORDER_REVERSED ? total - 1 - i : turn[i];
      Warp& w = c.ctas[k / nw].warps[k % nw];
      if (w.status != Status::READY) continue;
      running = &w;
      const bool was_waiting = w.waiting;
      run_warp(w, order == EVO_PTX_ORDER_SEEDED ? 16 + random_of(c.seed) % 512 : quantum);
      if (!w.waiting && !w.polling) c.progress = true;
      (void)was_waiting;
      if (w.status == Status::DONE) {
        w.cta->warps_done++;
        c.progress = true;
        warp_exited(w);
      } else if (w.status != Status::READY) {
        c.progress = true;
      }
      charge(worker);
    }
    running = nullptr;
    for (Cta& cta : c.ctas)
      for (Warp& w : cta.warps) {
        done += w.status == Status::DONE;
        ready += w.status == Status::READY;
        polling += w.status == Status::READY && w.polling;
      }
    if (done == total) {
      for (Cta& cta : c.ctas) check_warpgroups(cta);
      return Turn::DONE;
    }
    if (ready == 0) {
      if (!c.progress) deadlock(c);
      // Barriers are released on arrival, so a round in which somebody ran and nobody is ready is a deadlock as well.
      deadlock(c);
    }
    if (!c.progress) {
      if (polling) return Turn::POLLING;
      deadlock(c);
    }
    (void)before;
    if (c.instructions > until) return Turn::BUSY;
  }
}

void describe(Outcome& out, const Launch& L, const Fault& f, const Warp* w, u32 pc, u32 active) {
  const Program& p = *L.program;
  out.kind = f.kind;
  out.text = f.text;
  out.kernel = p.entry->name;
  if (f.memory) {
    out.address = f.address, out.space = space_name(f.space), out.buffer = f.buffer, out.offset = f.offset, out.nbytes = f.nbytes;
  }
  auto base = [](const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
  };
  auto where = [&](const Statement& s) { return place_of(*p.module, s); };
  std::string place;
  if (w && pc < p.code.size()) {
    const Statement& s = *p.sources[p.code[pc].source].statement;
    out.ptx_line = s.line;
    out.ptx_text = s.text;
    out.line = s.source_line;
    auto it = p.module->files.find(s.source_file);
    if (it != p.module->files.end() && s.source_line) out.file = it->second;
    place = out.line ? base(out.file) + ":" + std::to_string(out.line) : "";
    if (s.inner_line && (s.inner_line != s.source_line || s.inner_file != s.source_file)) {
      auto inner = p.module->files.find(s.inner_file);
      place += " (in " + (inner == p.module->files.end() ? std::string("?") : base(inner->second)) + ":" + std::to_string(s.inner_line) + ")";
    }
    const u32 lanes = active ? active : w->live;
    const u32 lane = f.lane >= 0 ? static_cast<u32>(f.lane) : lanes ? static_cast<u32>(std::countr_zero(lanes)) : 0;
    out.lanes = lanes;
    out.lane = static_cast<i32>(lane);
    out.warp = static_cast<i32>(w->id);
    for (int i = 0; i < 3; i++) out.cta[i] = static_cast<i32>(w->cta->index[i]);
    const u32 t = w->id * 32 + lane, *b = L.config.block;
    out.thread[0] = static_cast<i32>(t % b[0]);
    out.thread[1] = static_cast<i32>(t / b[0] % b[1]);
    out.thread[2] = static_cast<i32>(t / b[0] / b[1]);
  }
  if (!f.other_who.empty()) {
    out.other = f.other_who;
    if (f.other_pc >= 0 && static_cast<size_t>(f.other_pc) < p.code.size()) out.other += " at " + where(*p.sources[p.code[static_cast<size_t>(f.other_pc)].source].statement);
  }
  out.message = out.text;
  if (!out.other.empty()) out.message += "; the other access: " + out.other;
  if (w) {
    auto triple = [](const i32* v) { return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")"; };
    out.message += "\n  in " + out.kernel + (place.empty() ? "" : " at " + place) + ", block " + triple(out.cta) + " thread " + triple(out.thread) + " (warp " + std::to_string(out.warp) + ", lane " +
                   std::to_string(out.lane) + ")\n  PTX line " + std::to_string(out.ptx_line) + ": " + out.ptx_text;
  }
}

struct Failure {
  u64 cluster = ~u64(0);
  Outcome outcome;
};

void work(Launch& L, Worker& worker, Failure& failure) {
  std::deque<std::unique_ptr<Cluster>> alive;  // put aside: they poll, or have had their turn
  std::vector<std::unique_ptr<Cluster>> spare;
  const u64 per_cluster = std::max<u64>(1, cluster_memory(L));
  const u64 room = std::clamp<u64>(MEMORY_LIMIT / std::max(1u, L.config.threads) / per_cluster, 1, 2048);
  u32 idle = 0;
  u64 finished_seen = 0;
  std::unique_ptr<Cluster> c;
  Warp* running = nullptr;
  auto fail = [&](const Fault& f, const Warp* w, u64 cluster) {
    if (cluster < failure.cluster) {
      failure.cluster = cluster;
      failure.outcome = {};
      const Deferred* d = c ? c->deferred.get() : nullptr;
      if (d && !(f.kind == EVO_PTX_RACE && f.space == Space::SHARED) && f.kind != EVO_PTX_ABORTED) describe(failure.outcome, L, d->fault, d->warp, d->pc, d->active);
      else describe(failure.outcome, L, f, w, w ? w->pc : 0, w ? w->active : 0);
    }
    u64 old = L.first_bad.load();
    while (cluster < old && !L.first_bad.compare_exchange_weak(old, cluster)) {
    }
  };
  for (;;) {
    // A new cluster while the ones put aside only poll; otherwise the oldest goes on.
    const bool want_new = alive.empty() || (idle > 0 && alive.size() < room);
    bool fresh = false;
    if (want_new && L.next_cluster.load(std::memory_order_relaxed) < L.clusters && L.next_cluster.load(std::memory_order_relaxed) <= L.first_bad.load()) {
      const u64 k = L.next_cluster.fetch_add(1);
      if (k < L.clusters && k < L.first_bad.load()) {
        try {
          if (spare.empty()) {
            c = make_cluster(worker);
            fill_constants(*c);
          } else {
            c = std::move(spare.back());
            spare.pop_back();
          }
          start(*c, k);
          fresh = true;
        } catch (Refused& r) {
          fail(Fault(r.kind, r.text), nullptr, k);
          return;
        } catch (std::bad_alloc&) {
          fail(Fault(EVO_PTX_INTERNAL, "out of memory"), nullptr, k);
          return;
        }
      }
    }
    if (!fresh) {
      if (alive.empty()) return;
      c = std::move(alive.front());
      alive.pop_front();
    }
    if (c->linear > L.first_bad.load()) {  // an earlier one has failed: this one cannot matter
      spare.push_back(std::move(c));
      continue;
    }
    worker.totals.max_resident = std::max(worker.totals.max_resident, static_cast<u32>((alive.size() + 1) * L.ctas_per_cluster));
    try {
      const Turn t = take_turn(*c, running);
      if (t == Turn::DONE) {
        if (c->deferred) throw Fault(c->deferred->fault);
        worker.clock += c->instructions;
        finish(*c);
        L.finished.fetch_add(1);
        spare.push_back(std::move(c));
        idle = 0;
        continue;
      }
      if (t == Turn::BUSY) idle = 0;
      else if (L.finished.load() != finished_seen) finished_seen = L.finished.load(), idle = 1;
      else idle++;
      if (idle > IDLE_ROUNDS + 4 * alive.size()) {
        Fault f(EVO_PTX_DEADLOCK, "deadlock: every CTA that is left polls global memory and nothing changes");
        throw std::pair<Fault, Warp*>(f, &c->ctas[0].warps[0]);
      }
      alive.push_back(std::move(c));
    } catch (Fault& f) {
      fail(f, running, c->linear);
      if (f.kind == EVO_PTX_RUNAWAY || f.kind == EVO_PTX_ABORTED) {
        L.first_bad.store(0);
        return;
      }
    } catch (std::pair<Fault, Warp*>& f) {
      fail(f.first, f.second, c->linear);
    } catch (std::bad_alloc&) {
      fail(Fault(EVO_PTX_INTERNAL, "out of memory"), running, c->linear);
    } catch (std::exception& e) {
      fail(Fault(EVO_PTX_INTERNAL, std::string("a bug of the interpreter: ") + e.what()), running, c->linear);
    }
  }
}

}  // namespace

Outcome run_launch(const Program& program, const evo_ptx_launch& config) {
  const auto began = std::chrono::steady_clock::now();
  Outcome out;
  Launch L;
  L.program = &program;
  L.config = config;
  out.counts.resize(program.code.size());
  try {
    prepare(L);
    const u32 n = static_cast<u32>(std::min<u64>(std::max(1u, std::min(config.threads, 256u)), L.clusters));
    L.config.threads = n;
    std::vector<Worker> workers(n);
    std::vector<Failure> failures(n);
    for (auto& w : workers) {
      w.launch = &L;
      w.counts.resize(program.code.size());
    }
    std::vector<std::thread> threads;
    for (u32 i = 1; i < n; i++) threads.emplace_back([&, i] { work(L, workers[i], failures[i]); });
    work(L, workers[0], failures[0]);
    for (auto& t : threads) t.join();
    const Failure* worst = nullptr;
    for (auto& f : failures)
      if (f.cluster != ~u64(0) && (!worst || f.cluster < worst->cluster)) worst = &f;
    if (worst) out = worst->outcome;
    out.counts.assign(program.code.size(), {});
    for (auto& w : workers) {
      for (size_t i = 0; i < out.counts.size(); i++) {
        Count &a = out.counts[i], &b = w.counts[i];
        a.executed += b.executed, a.lanes += b.lanes, a.wavefronts += b.wavefronts, a.ideal += b.ideal, a.sectors += b.sectors, a.bytes += b.bytes;
      }
      Totals &a = out.totals, &b = w.totals;
      a.shared_read += b.shared_read, a.shared_written += b.shared_written, a.global_read += b.global_read, a.global_written += b.global_written;
      a.sectors_read += b.sectors_read, a.sectors_written += b.sectors_written, a.async_bytes += b.async_bytes;
      a.barrier_waits += b.barrier_waits, a.mbarrier_waits += b.mbarrier_waits, a.divergent += b.divergent;
      a.max_resident += b.max_resident;
    }
    out.ctas = L.clusters * L.ctas_per_cluster;
    out.warps = out.ctas * L.warps_per_cta;
    out.threads = out.ctas * L.threads_per_cta;
  } catch (Refused& r) {
    out.kind = r.kind;
    out.text = out.message = r.text;
    out.kernel = program.entry->name;
  } catch (std::bad_alloc&) {
    out.kind = EVO_PTX_INTERNAL;
    out.text = out.message = "out of memory";
    out.kernel = program.entry->name;
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return out;
}

}  // namespace ptx

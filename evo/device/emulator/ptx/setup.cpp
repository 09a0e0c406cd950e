#include "setup.hpp"

#include <algorithm>

#include "hopper.hpp"
#include "wgmma.hpp"

namespace ptx {
namespace {

u32 up(u32 x, u32 align) { return (x + align - 1) / align * align; }

template <class F>
void fill(Warp& w, u32 slot, u32 width, F f) {
  for (u32 l = 0; l < 32; l++) {
    if (width == 64) w.w(slot)[l] = f(l);
    else w.u(slot)[l] = static_cast<u32>(f(l));
  }
}

// Special registers that have another value in the next cluster.
bool changes(const std::string& name) {
  return name.starts_with("%ctaid.") || name.starts_with("%clusterid.") ||
         name.starts_with("%cluster_ctaid.") || name == "%smid";
}

u64 grid_barrier(const Launch& L) { return reinterpret_cast<u64>(L.program->module->placed->grid); }

u64 special(const Launch& L, const Cta& c, const Warp& w, u32 lane, const std::string& n) {
  const evo_ptx_launch& k = L.config;
  const u32 t = w.id * 32 + lane;
  const u32* cs = L.cluster_shape;
  auto axis = [&] { return n.back() == 'x' ? 0 : n.back() == 'y' ? 1 : 2; };
  if (n.starts_with("%tid."))
    return axis() == 0   ? t % k.block[0]
           : axis() == 1 ? t / k.block[0] % k.block[1]
                         : t / (k.block[0] * k.block[1]);
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
  if (n == "%envreg1") return k.cooperative ? grid_barrier(L) >> 32 : 0;
  if (n == "%envreg2") return k.cooperative ? static_cast<u32>(grid_barrier(L)) : 0;
  if (n == "%current_graph_exec") return 0;
  throw Refused{EVO_PTX_UNSUPPORTED, "special register " + n};
}

// ---- launches
[[noreturn]] void refuse(const std::string& why) { throw Refused{EVO_PTX_REFUSED, why}; }

constexpr char AXES[] = "xyz";

void check_dimension(const char* what, int axis, u32 size, u32 limit) {
  if (size == 0 || size > limit)
    refuse(std::string(what) + " dimension " + AXES[axis] + " = " + std::to_string(size) + " is outside 1.." +
           std::to_string(limit));
}

void prepare_block(Launch& L) {
  const evo_ptx_launch& c = L.config;
  const Function& f = *L.program->entry;
  const u32 limits_grid[3] = {0x7fffffffu, 65535, 65535}, limits_block[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; i++) {
    check_dimension("grid", i, c.grid[i], limits_grid[i]);
    check_dimension("block", i, c.block[i], limits_block[i]);
  }
  const u64 threads = u64(c.block[0]) * c.block[1] * c.block[2];
  if (threads > 1024) refuse("a block has " + std::to_string(threads) + " threads, more than 1024");
  if (f.max_threads && threads > f.max_threads)
    refuse("a block has " + std::to_string(threads) + " threads, more than the kernel's launch bound " +
           std::to_string(f.max_threads));
  if (f.required_threads[0])
    for (int i = 0; i < 3; i++)
      if (f.required_threads[i] != c.block[i]) refuse("the kernel requires another block shape (.reqntid)");
  L.threads_per_cta = static_cast<u32>(threads);
  L.warps_per_cta = up(L.threads_per_cta, 32) / 32;
}

void prepare_clusters(Launch& L) {
  const evo_ptx_launch& c = L.config;
  const Function& f = *L.program->entry;
  u64 ctas = 1;
  for (int i = 0; i < 3; i++) {
    L.cluster_shape[i] = c.cluster[i] ? c.cluster[i] : 1;
    if (f.required_cluster[0]) {
      if (c.cluster[i] > 1 && c.cluster[i] != f.required_cluster[i])
        refuse("the kernel requires another cluster shape (.reqnctapercluster)");
      L.cluster_shape[i] = f.required_cluster[i] ? f.required_cluster[i] : 1;
    }
    if (L.cluster_shape[i] > 16) refuse("a cluster has at most 16 CTAs");
    if (c.grid[i] % L.cluster_shape[i])
      refuse(std::string("the grid is not a multiple of the cluster in ") + AXES[i]);
    L.ctas_per_cluster = i ? L.ctas_per_cluster * L.cluster_shape[i] : L.cluster_shape[i];
    ctas *= c.grid[i];
  }
  if (L.ctas_per_cluster > 16) refuse("a cluster has at most 16 CTAs");
  if (ctas > (u64(1) << 40)) refuse("the grid is too large");
  L.clusters = ctas / L.ctas_per_cluster;
}

void prepare_memory(Launch& L) {
  const Program& p = *L.program;
  const evo_ptx_launch& c = L.config;
  if (c.dynamic_smem > MAX_SHARED) refuse("too much dynamic shared memory");
  L.shared_bytes = p.dynamic_offset + c.dynamic_smem;
  if (L.shared_bytes > MAX_SHARED) refuse("too much shared memory");
  if (c.params_nbytes < p.param_nbytes)
    refuse("the parameter block has " + std::to_string(c.params_nbytes) + " bytes, the kernel takes " +
           std::to_string(p.param_nbytes));
  if (p.param_nbytes && !c.params) refuse("no parameter block");
}

// ---- regions: what the caller gave, the parameter block, variables of the module
void add_region(Launch& L, GlobalRegion r) {
  if (!r.nbytes) return;
  if (r.address + r.nbytes < r.address || (r.address + r.nbytes) & WINDOW_MASK)
    refuse("region `" + r.name + "` is not in the address range of the host");
  if ((r.writable && L.race) || (!r.initialised && L.init)) r.shadow = make_shadow(r.nbytes);
  L.regions.push_back(std::move(r));
}

// The first place in `memory` that is a multiple of `align`.
u8* aligned(std::vector<u8>& memory, u64 align) {
  return memory.data() + (align - reinterpret_cast<u64>(memory.data()) % align) % align;
}

void add_parameters(Launch& L) {
  const u32 nbytes = L.program->param_nbytes;
  L.params.assign(nbytes + 128, 0);
  u8* block = aligned(L.params, 128);  // __grid_constant__ tensor maps need that
  if (nbytes) std::memcpy(block, L.config.params, nbytes);
  L.param_address = reinterpret_cast<u64>(block);
  add_region(L, {"kernel parameters", L.param_address, nbytes, false, true, Space::PARAM, {}});
}

// Gives the variables their first values.
void place_variables(const Module& m, Placed& placed) {
  std::vector<std::vector<u8>> memory;
  std::vector<u64> address(m.variables.size(), 0);
  for (size_t i = 0; i < m.variables.size(); i++) {
    const Variable& v = m.variables[i];
    if ((v.space != Space::GLOBAL && v.space != Space::CONST) || v.external) continue;
    u8* at = aligned(memory.emplace_back(v.nbytes + 256), 256);
    std::memcpy(at, v.init.data(), std::min<u64>(v.init.size(), v.nbytes));
    address[i] = reinterpret_cast<u64>(at);
  }
  // Initialisers that name other variables.
  for (size_t i = 0; i < m.variables.size(); i++)
    for (auto& a : m.variables[i].addresses) {
      auto it = m.variable_index.find(a.symbol);
      if (!address[i] || it == m.variable_index.end()) continue;
      const u64 value = address[it->second] + static_cast<u64>(a.offset);
      if (a.at + 8 <= m.variables[i].nbytes) std::memcpy(reinterpret_cast<u8*>(address[i]) + a.at, &value, 8);
    }
  placed.memory = std::move(memory);
  placed.address = std::move(address);
}

const std::vector<u64>& placed_addresses(const Module& m) {
  Placed& placed = *m.placed;
  const std::lock_guard lock(placed.mutex);
  if (placed.address.empty()) place_variables(m, placed);
  return placed.address;  // from now on the same
}

void add_variables(Launch& L) {
  const Module& m = *L.program->module;
  L.symbol_address = placed_addresses(m);
  for (size_t i = 0; i < m.variables.size(); i++) {
    const Variable& v = m.variables[i];
    if (!L.symbol_address[i]) continue;
    add_region(L, {v.name, L.symbol_address[i], v.nbytes, v.space == Space::GLOBAL, true, v.space, {}});
  }
}

}  // namespace

u64 address_of(const Module& m, u32 variable) { return placed_addresses(m)[variable]; }

void check_grid_barrier(const Launch& L) {
  if (!L.config.cooperative) return;
  u32& word = L.program->module->placed->grid[1];
  if (!(word & 0x7fffffff)) return;
  word = 0;
  throw Fault(EVO_PTX_SYNC, "the launch ends before all CTAs have come to the grid's barrier");
}

void prepare(Launch& L) {
  const evo_ptx_launch& c = L.config;
  if (!L.program->unsupported.empty()) throw Refused{EVO_PTX_UNSUPPORTED, L.program->unsupported};
  prepare_block(L);
  prepare_clusters(L);
  prepare_memory(L);
  L.registers = up(c.registers ? c.registers : L.program->entry->max_registers, 8);
  L.init = c.checks & EVO_PTX_CHECK_INIT;
  L.race = c.checks & EVO_PTX_CHECK_RACE;
  L.late_copies = c.late_copies, L.late_wgmma = c.late_wgmma;
  L.interleave = c.order != EVO_PTX_ORDER_FORWARD;
  for (u64 i = 0; i < c.region_count; i++) {
    const evo_ptx_region& r = c.regions[i];
    add_region(
        L,
        {r.name ? r.name : "", r.address, r.nbytes, r.writable != 0, r.initialised != 0, Space::GLOBAL, {}});
  }
  add_parameters(L);
  add_variables(L);
  if (c.cooperative)
    add_region(L, {"the grid's barrier", grid_barrier(L) + 4, 4, true, true, Space::GLOBAL, {}});
  std::sort(L.regions.begin(), L.regions.end(), [](auto& a, auto& b) { return a.address < b.address; });
  for (size_t i = 1; i < L.regions.size(); i++)
    if (L.regions[i - 1].address + L.regions[i - 1].nbytes > L.regions[i].address)
      refuse("regions `" + L.regions[i - 1].name + "` and `" + L.regions[i].name + "` overlap");
}

// ---- clusters
std::unique_ptr<Cluster> make_cluster(Worker& worker) {
  Launch& L = *worker.launch;
  const Program& p = *L.program;
  auto c = std::make_unique<Cluster>();
  c->worker = &worker;
  const u32 nw = L.warps_per_cta, n = L.ctas_per_cluster;
  c->agents = n * (nw + (p.mbarriers ? MBARRIER_AGENTS : 0) + (p.bulk_stores ? nw : 0));
  const u32 stride = up(c->agents, 16);
  c->clock_words = stride * (p.async_proxy ? 3 : 1);
  if (p.async_proxy) c->shared_proxy = stride, c->global_proxy = 2 * stride;
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
      cta.reads.resize(c->agents), cta.older_reads.resize(c->agents), cta.newest.resize(c->agents);
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
  return L.ctas_per_cluster *
         (shared + race + u64(L.warps_per_cta) * (p.frame_bytes + 64 * u64(p.local_bytes) + 4096));
}

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
            if ((f.index & 0x80) && n < 8)
              v = static_cast<u64>(static_cast<i64>(v << (64 - 8 * n)) >> (64 - 8 * n));
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
        if (s.width > 1 && !changes(s.name))
          fill(w, s.slot, s.width, [&](u32 l) { return special(L, cta, w, l, s.name); });
      w.predicates[0] = 0, w.predicates[1] = FULL;
    }
}

// ---- the start of a cluster
namespace {

// Clocks go on rising from one cluster to the next, so that what the last one left in the cells counts as
// ordered. They start anew before they leave the bits that a cell has for them.
void start_clocks(Cluster& c) {
  if (c.base_clock > MAX_STAMP_CLOCK / 4) {
    for (Cta& cta : c.ctas) {
      std::fill(cta.cells.begin(), cta.cells.end(), Cell{});
      for (auto& r : cta.reads) std::fill(r.begin(), r.end(), Read{});
      cta.parts.clear();
      for (auto& r : cta.older_reads) r.clear();
      std::fill(cta.newest.begin(), cta.newest.end(), NewestReads{});
    }
    c.base_clock = 1;
  }
  std::fill(c.clocks.begin(), c.clocks.end(), c.base_clock);
  std::fill(c.agent_clock.begin(), c.agent_clock.end(), c.base_clock);
}

// The place of the CTA in the grid.
void place(Cta& cta, const Launch& L, u64 cluster) {
  const u32* cs = L.cluster_shape;
  const u32* grid = L.config.grid;
  const u64 nx = grid[0] / cs[0], ny = grid[1] / cs[1];
  const u64 ci[3] = {cluster % nx, cluster / nx % ny, cluster / nx / ny};
  const u32 ri[3] = {cta.rank % cs[0], cta.rank / cs[0] % cs[1], cta.rank / cs[0] / cs[1]};
  for (int i = 0; i < 3; i++) cta.index[i] = static_cast<u32>(ci[i]) * cs[i] + ri[i];
  cta.linear = cta.index[0] + u64(grid[0]) * (cta.index[1] + u64(grid[1]) * cta.index[2]);
}

void start_cta(Cta& cta) {
  std::memset(cta.shared.data(), 0xcd, cta.shared.size());
  std::memset(cta.shared_init.data(), 0, cta.shared_init.size() * 2);
  for (auto& m : cta.mbarriers)
    if (m->alive) cta.mbarrier_at[(m->address - cta.base) >> 3] = 0;
  cta.mbarriers.clear();
  for (Barrier& b : cta.barriers) b = Barrier{};
  cta.visits.clear(), cta.late_visits.clear();
  cta.warps_done = 0;
  std::fill(std::begin(cta.free_registers), std::end(cta.free_registers), 0);
  if (!cta.local.empty()) {
    std::memset(cta.local.data(), 0xcd, cta.local.size());
    std::memset(cta.local_init.data(), 0, cta.local_init.size());
  }
}

void start_warp(Warp& w, const Launch& L) {
  const Program& p = *L.program;
  const u32 threads = L.threads_per_cta - w.id * 32;
  w.live = w.active = threads >= 32 ? FULL : (1u << threads) - 1;
  w.pc = p.start, w.limit = ~0u, w.blocked = 0;
  w.status = Status::READY;
  w.waiting = w.polling = w.yielded = false, w.yields = 0;
  w.cluster_phase = 0, w.cluster_passed = 0, w.cluster_arrived = false;
  w.owned = w.wanted = L.registers, w.adjusted = 0;
  w.copies.clear(), w.bulk.clear(), w.wgmma.clear();
  w.group.fill(0), w.arrivals.fill(0), w.bulk_group.fill(0);
  w.wgmma_group = 0, w.fenced_wgmma = false;
  std::fill(w.pending.begin(), w.pending.end(), 0);
  for (auto& r : w.returns) r.clear();
  w.saved.clear();
  w.fences = nullptr, w.fence_scope = Scope::NONE;
  w.foreign = nullptr;
  std::memset(w.registers, 0xff, p.register_bytes);  // NaN: an accumulator that was never set shows
  std::memset(w.predicates + 2, 0, 4 * (p.predicates - 2));
  w.clock[w.agent] = w.cta->cluster->base_clock + 2;  // one after that of its start
  for (auto& s : p.specials)
    if (s.width > 1 && changes(s.name))
      fill(w, s.slot, s.width, [&](u32 l) { return special(L, *w.cta, w, l, s.name); });
}

}  // namespace

void start(Cluster& c, u64 linear) {
  const Launch& L = *c.worker->launch;
  c.linear = linear;
  c.deferred = nullptr;
  c.barrier_arrived = 0, c.barrier_phase = 0;
  c.barrier_clock.assign(c.clock_words, 0), c.barrier_done.assign(c.clock_words, 0);
  c.barrier_foreign = c.barrier_foreign_done = nullptr;
  c.barrier_fences = nullptr, c.barrier_fences_done = nullptr;
  c.arrived.assign(c.agents, 0), c.arrived_done.assign(c.agents, 0);
  c.handed.assign(c.agents, 0), c.handed_done.assign(c.agents, 0);
  c.instructions = 0;
  c.seed = L.config.seed * 0x9e3779b97f4a7c15ull + linear;
  start_clocks(c);
  for (Cta& cta : c.ctas) {
    place(cta, L, linear);
    start_cta(cta);
    for (Warp& w : cta.warps) start_warp(w, L);
  }
}

void finish(Cluster& c) {
  u32 top = c.base_clock;
  for (u32 v : c.clocks) top = std::max(top, v);
  for (u32 v : c.agent_clock) top = std::max(top, v);
  c.base_clock = top + 1;
}

}  // namespace ptx

#include "scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "barriers.hpp"
#include "hopper.hpp"
#include "setup.hpp"
#include "wgmma.hpp"

namespace ptx {
namespace {

constexpr u64 QUANTUM = 200000;             // warp instructions before others of the CTA get a turn
constexpr u64 CLUSTER_TURN = 4u << 20;      // before a CTA is put aside for others
constexpr u64 MEMORY_LIMIT = u64(2) << 30;  // of all CTAs alive
constexpr u64 RESIDENT = 2048;              // CTAs that are alive at once, where the launch does not say
constexpr u64 MAX_YIELDED = 32;             // CTAs that are kept alive so that others come between
constexpr u32 IDLE_ROUNDS = 20000;          // rounds of nothing but polling before it is called a deadlock

u64 random_of(u64& seed) {  // splitmix64
  u64 z = (seed += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The number that `x`, one of `n`, has in an order that `seed` shuffles: rounds that mix one half of the bits
// into the other, again and again until it is one of `n`.
u64 shuffled(u64 x, u64 n, u64 seed) {
  const u32 half = static_cast<u32>(std::bit_width(n - 1) + 1) / 2;
  const u64 mask = (u64(1) << half) - 1;
  do {
    u64 left = x >> half, right = x & mask;
    for (u64 round = 0; round < 4; round++) {
      u64 key = seed + right * 0x9e3779b97f4a7c15ull + round;
      left = std::exchange(right, left ^ (random_of(key) & mask));
    }
    x = left << half | right;
  } while (x >= n);
  return x;
}

// The cluster that starts as number `position`. CUDA promises no order among CTAs. A GPU starts the first
// ones first, yet one that it starts later may well come first to a place where they meet.
u64 cluster_at(const Launch& L, u64 position) {
  const u64 first = L.clusters - L.starts;
  switch (L.config.order) {
    case EVO_PTX_ORDER_REVERSED: return L.clusters - 1 - position;
    case EVO_PTX_ORDER_SEEDED:
      return first + (shuffled(position, L.starts, L.config.seed) + L.config.seed) % L.starts;
    default: return first + position;
  }
}

// ---- running
enum class Turn { DONE, POLLING, BUSY, YIELDED };

std::string waits_at(const Warp& w) {
  switch (w.status) {
    case Status::AT_BARRIER: return "barrier " + std::to_string(w.barrier);
    case Status::AT_CLUSTER_BARRIER: return "barrier.cluster";
    case Status::AT_REGISTERS:
      return "setmaxnreg.inc for " + std::to_string(w.wanted) + " registers a thread";
    default: return "an mbarrier";
  }
}

[[noreturn]] void deadlock(Cluster& c) {
  const Program& p = *c.worker->launch->program;
  std::vector<Warp*> waiting;
  for (Cta& cta : c.ctas)
    for (Warp& w : cta.warps)
      if (w.status != Status::DONE) waiting.push_back(&w);
  // A warp that waits for registers is told first. The others only wait for what it would do.
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
    text += " warp " + std::to_string(w.id) +
            (c.ctas.size() > 1 ? " of CTA rank " + std::to_string(w.cta->rank) : "") + " waits at " +
            waits_at(w) + " (" + place_of(*p.module, s) + ");";
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
      throw Fault(EVO_PTX_RUNAWAY, "runaway: the launch has executed " + std::to_string(all) +
                                       " warp instructions, more than its budget of " +
                                       std::to_string(L.config.instruction_budget));
  }
  if (L.config.abort_flag && *L.config.abort_flag) throw Fault(EVO_PTX_ABORTED, "the launch was interrupted");
}

// Lets every warp of the cluster run until it blocks, again and again until the turn is over.
Turn take_turn(Cluster& c, Warp*& running) {
  Worker& worker = *c.worker;
  Launch& L = *worker.launch;
  const u32 order = L.config.order;
  const u32 nw = L.warps_per_cta, total = nw * L.ctas_per_cluster;
  const u64 until = c.instructions + CLUSTER_TURN;
  u64 quantum = QUANTUM;
  if (L.config.instruction_budget) quantum = std::clamp<u64>(L.config.instruction_budget / 4, 1000, QUANTUM);
  u32 idle = 0;  // rounds of nothing but waiting
  std::vector<u32> turn(total);
  for (u32 i = 0; i < total; i++) turn[i] = i;
  for (;;) {
    c.progress = false;
    bool yielded = false;
    u32 done = 0, ready = 0, polling = 0;
    if (order == EVO_PTX_ORDER_SEEDED)
      for (u32 i = total; i > 1; i--) std::swap(turn[i - 1], turn[random_of(c.seed) % i]);
    for (u32 i = 0; i < total; i++) {
      const u32 k = order == EVO_PTX_ORDER_REVERSED ? total - 1 - i : turn[i];
      Warp& w = c.ctas[k / nw].warps[k % nw];
      if (w.status != Status::READY) continue;
      running = &w;
      run_warp(w, order == EVO_PTX_ORDER_SEEDED ? 16 + random_of(c.seed) % 512 : quantum);
      if (w.yielded || (!w.waiting && !w.polling)) c.progress = true;
      yielded |= w.yielded;
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
      check_copies(c);
      return Turn::DONE;
    }
    // Barriers are released on arrival. So a round after which no warp is ready is a deadlock, even if one
    // ran in it.
    if (ready == 0) deadlock(c);
    if (!c.progress) {
      if (polling) return Turn::POLLING;
      if (++idle > 32) deadlock(c);  // lanes of a warp may poll in turns with lanes that wait
    } else {
      idle = 0;
    }
    if (yielded) return Turn::YIELDED;
    if (c.instructions > until) return Turn::BUSY;
  }
}

void describe(Outcome& out, const Launch& L, const Fault& f, const Warp* w, u32 pc, u32 active) {
  const Program& p = *L.program;
  out.kind = f.kind;
  out.text = f.text;
  out.kernel = p.entry->name;
  if (f.memory) {
    out.address = f.address, out.space = space_name(f.space), out.buffer = f.buffer, out.offset = f.offset,
    out.nbytes = f.nbytes;
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
      place += " (in " + (inner == p.module->files.end() ? std::string("?") : base(inner->second)) + ":" +
               std::to_string(s.inner_line) + ")";
    }
    const u32 lanes = active ? active : w->live;
    const u32 lane = f.lane >= 0 ? static_cast<u32>(f.lane)
                     : lanes     ? static_cast<u32>(std::countr_zero(lanes))
                                 : 0;
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
    if (f.other_pc >= 0 && static_cast<size_t>(f.other_pc) < p.code.size())
      out.other += " at " + where(*p.sources[p.code[static_cast<size_t>(f.other_pc)].source].statement);
  }
  out.message = out.text;
  if (!out.other.empty()) out.message += "; the other access: " + out.other;
  if (w) {
    auto triple = [](const i32* v) {
      return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
    };
    out.message += "\n  in " + out.kernel + (place.empty() ? "" : " at " + place) + ", block " +
                   triple(out.cta) + " thread " + triple(out.thread) + " (warp " + std::to_string(out.warp) +
                   ", lane " + std::to_string(out.lane) + ")\n  PTX line " + std::to_string(out.ptx_line) +
                   ": " + out.ptx_text;
  }
}

struct Failure {
  u64 position = ~u64(0);  // of the cluster that failed
  Outcome outcome;
};

// CTAs may wait for each other only if the GPU holds them at once. It starts them in order, and scans rely on
// that: where others start first, more have room.
u64 room(const Launch& L) {
  if (L.config.cooperative) return L.clusters;
  const u64 workers = std::max(1u, L.config.threads);
  const u64 memory = MEMORY_LIMIT / workers / std::max<u64>(1, cluster_memory(L));
  const u64 held = (L.config.resident ? L.config.resident : RESIDENT) / L.ctas_per_cluster / workers;
  return std::max<u64>(1, L.config.order == EVO_PTX_ORDER_FORWARD ? std::min(held, memory) : memory);
}

// What one worker thread does: it runs clusters until none is left.
class Shift {
 public:
  Shift(Launch& launch, Worker& worker, Failure& failure) : L(launch), worker_(worker), failure_(failure) {}
  void work() {
    while (fetch()) {
      // After an earlier cluster has failed, this one cannot matter.
      if (c_->position > L.first_bad.load()) spare_.push_back(std::move(c_));
      else if (!turn()) return;
    }
  }

 private:
  bool fetch();
  bool begin(u64 position);
  size_t place_of_neighbour() const;
  bool turn();
  void put_aside(Turn t);
  void fail(const Fault& f, const Warp* w, u64 position);

  Launch& L;
  Worker& worker_;
  Failure& failure_;
  std::unique_ptr<Cluster> c_;                   // the one that runs
  Warp* running_ = nullptr;                      // its warp that runs
  std::deque<std::unique_ptr<Cluster>> alive_;   // put aside: they poll, or have had their turn
  std::vector<std::unique_ptr<Cluster>> spare_;  // finished: their memory serves the next ones
  const u64 room_ = room(L);
  u32 idle_ = 0;          // rounds in which clusters only polled
  bool yielded_ = false;  // the last one let others come between
  u64 finished_seen_ = 0;
  u64 just_finished_ = ~u64(0);  // the cluster that ended the last turn, if one did
};

void Shift::fail(const Fault& f, const Warp* w, u64 position) {
  if (position < failure_.position) {
    failure_.position = position;
    failure_.outcome = {};
    const Deferred* d = c_ ? c_->deferred.get() : nullptr;
    if (d && !(f.kind == EVO_PTX_RACE && f.space == Space::SHARED) && f.kind != EVO_PTX_ABORTED)
      describe(failure_.outcome, L, d->fault, d->warp, d->pc, d->active);
    else describe(failure_.outcome, L, f, w, w ? w->pc : 0, w ? w->active : 0);
  }
  u64 old = L.first_bad.load();
  while (position < old && !L.first_bad.compare_exchange_weak(old, position)) {}
}

// The next cluster to run: a new one while those put aside only poll, otherwise the oldest of them. Returns
// false if there is none.
bool Shift::fetch() {
  const bool more = idle_ > 0 || (yielded_ && alive_.size() < MAX_YIELDED);
  const bool want_new = alive_.empty() || (more && alive_.size() < room_);
  yielded_ = false;
  if (want_new && L.next_start.load(std::memory_order_relaxed) < L.starts &&
      L.next_start.load(std::memory_order_relaxed) <= L.first_bad.load()) {
    const u64 k = L.next_start.fetch_add(1);
    if (k < L.starts && k < L.first_bad.load()) return begin(k);
  }
  if (alive_.empty()) return false;
  const auto next = alive_.begin() + static_cast<std::ptrdiff_t>(place_of_neighbour());
  c_ = std::move(*next);
  alive_.erase(next);
  return true;
}

// Where many wait, each for the one beside it, the one beside that which has finished can go on. To ask all
// others first would take the square of their number.
size_t Shift::place_of_neighbour() const {
  if (alive_.size() <= MAX_YIELDED || just_finished_ == ~u64(0)) return 0;
  for (size_t i = 0; i < alive_.size(); i++)
    if (const u64 k = alive_[i]->linear; k == just_finished_ + 1 || k + 1 == just_finished_) return i;
  return 0;
}

bool Shift::begin(u64 position) {
  try {
    if (spare_.empty()) {
      c_ = make_cluster(worker_);
      fill_constants(*c_);
    } else {
      c_ = std::move(spare_.back());
      spare_.pop_back();
    }
    c_->position = position;
    start(*c_, cluster_at(L, position));
    return true;
  } catch (Refused& r) {
    fail(Fault(r.kind, r.text), nullptr, position);
  } catch (std::bad_alloc&) {
    fail(Fault(EVO_PTX_INTERNAL, "out of memory"), nullptr, position);
  }
  return false;
}

// Runs the cluster for a while. Returns false if the whole launch ends here.
bool Shift::turn() {
  just_finished_ = ~u64(0);
  worker_.totals.max_resident =
      std::max(worker_.totals.max_resident, static_cast<u32>((alive_.size() + 1) * L.ctas_per_cluster));
  try {
    const Turn t = take_turn(*c_, running_);
    if (t != Turn::DONE) {
      put_aside(t);
      return true;
    }
    if (c_->deferred) throw Fault(c_->deferred->fault);
    worker_.clock += c_->instructions;
    finish(*c_);
    just_finished_ = c_->linear;
    L.finished.fetch_add(1);
    spare_.push_back(std::move(c_));
    idle_ = 0;
  } catch (Fault& f) {
    fail(f, running_, c_->position);
    if (f.kind == EVO_PTX_RUNAWAY || f.kind == EVO_PTX_ABORTED) {
      L.first_bad.store(0);
      return false;
    }
  } catch (std::pair<Fault, Warp*>& f) {
    fail(f.first, f.second, c_->position);
  } catch (std::bad_alloc&) {
    fail(Fault(EVO_PTX_INTERNAL, "out of memory"), running_, c_->position);
  } catch (std::exception& e) {
    fail(Fault(EVO_PTX_INTERNAL, std::string("a bug of the interpreter: ") + e.what()), running_,
         c_->position);
  }
  return true;
}

void Shift::put_aside(Turn t) {
  yielded_ = t == Turn::YIELDED;
  if (t == Turn::BUSY || yielded_) idle_ = 0;
  else if (L.finished.load() != finished_seen_) finished_seen_ = L.finished.load(), idle_ = 1;
  else idle_++;
  // What it waits for may be up to a worker that has no core of the host just now: 2 s in all.
  if (L.config.threads > 1 && idle_ > IDLE_ROUNDS / 20)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (idle_ > IDLE_ROUNDS + 4 * alive_.size()) {
    if (L.first_bad.load() != ~u64(0)) {  // it waits for a CTA that has failed: that is what is wrong
      spare_.push_back(std::move(c_));
      return;
    }
    Fault f(EVO_PTX_DEADLOCK, "deadlock: every CTA that is left polls global memory and nothing changes");
    throw std::pair<Fault, Warp*>(f, &c_->ctas[0].warps[0]);
  }
  alive_.push_back(std::move(c_));
}

void add(Outcome& out, const Worker& w) {
  for (size_t i = 0; i < out.counts.size(); i++) {
    Count& a = out.counts[i];
    const Count& b = w.counts[i];
    a.executed += b.executed, a.lanes += b.lanes, a.wavefronts += b.wavefronts;
    a.ideal += b.ideal, a.sectors += b.sectors, a.bytes += b.bytes;
  }
  Totals& a = out.totals;
  const Totals& b = w.totals;
  a.shared_read += b.shared_read, a.shared_written += b.shared_written;
  a.global_read += b.global_read, a.global_written += b.global_written;
  a.sectors_read += b.sectors_read, a.sectors_written += b.sectors_written;
  a.async_bytes += b.async_bytes, a.barrier_waits += b.barrier_waits;
  a.mbarrier_waits += b.mbarrier_waits, a.divergent += b.divergent;
  a.max_resident += b.max_resident;
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
    L.starts = config.last_clusters ? std::min<u64>(config.last_clusters, L.clusters) : L.clusters;
    const u32 n = static_cast<u32>(std::min<u64>(std::max(1u, std::min(config.threads, 256u)), L.starts));
    L.config.threads = n;
    std::vector<Worker> workers(n);
    std::vector<Failure> failures(n);
    for (auto& w : workers) {
      w.launch = &L;
      w.counts.resize(program.code.size());
    }
    std::vector<std::thread> threads;
    for (u32 i = 1; i < n; i++) threads.emplace_back([&, i] { Shift(L, workers[i], failures[i]).work(); });
    Shift(L, workers[0], failures[0]).work();
    for (auto& t : threads) t.join();
    const Failure* worst = nullptr;
    for (auto& f : failures)
      if (f.position != ~u64(0) && (!worst || f.position < worst->position)) worst = &f;
    if (worst) out = worst->outcome;
    try {
      check_grid_barrier(L);
    } catch (Fault& f) {
      if (!worst) describe(out, L, f, nullptr, 0, 0);
    }
    out.counts.assign(program.code.size(), {});
    for (auto& w : workers) add(out, w);
    out.ctas = L.starts * L.ctas_per_cluster;
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

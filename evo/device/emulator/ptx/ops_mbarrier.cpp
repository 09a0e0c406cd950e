// Mbarriers: their life, arrivals, and waiting for a phase.
#include "hopper.hpp"
#include "lanes.hpp"

namespace ptx {

Mbarrier& mbarrier_at(Warp& w, u32 address, u32 lane) {
  Cta& c = cta_of(w, address);
  const u32 o = shared_offset(w, c, address, 8);
  const u16 k = c.mbarrier_at.empty() ? 0 : c.mbarrier_at[o >> 3];
  if (!k) {
    Fault f(EVO_PTX_SYNC, "no mbarrier has been initialised at shared address " + hex(address),
            static_cast<int>(lane));
    throw f.at(Space::SHARED, address, 8, "shared memory", o);
  }
  Mbarrier& b = *c.mbarriers[k - 1u];
  const bool announced = b.announced && w.cluster_passed >= b.announced;
  if (w.worker->launch->race && b.init_clock > w.clock[b.init_agent] && b.init_agent != w.agent &&
      !announced) {
    Fault f(EVO_PTX_RACE, "use of an mbarrier not ordered after its mbarrier.init", static_cast<int>(lane));
    throw f.at(Space::SHARED, address, 8, "shared memory", o)
        .against(agent_name(*w.cta->cluster, b.init_agent), b.init_pc);
  }
  return b;
}

void advance(Cluster& c, Mbarrier& b) {
  c.progress = true;
  if (b.pending != 0 || b.tx != 0) return;
  b.phase++;
  b.pending = b.expected;
  b.done = b.current;
  if (c.ctas.size() > 1) b.done_near = b.current_near;
}

namespace {

constexpr i64 MAX_COUNT = (1 << 20) - 1;

u32 address_at(Warp& w, const Ins& I, u32 l) {
  return (I.flags & ADDRESS_WIDE ? static_cast<u32>(w.w(I.a)[l]) : w.u(I.a)[l]) + static_cast<u32>(I.imm);
}

// Only arrivals, and what counts bytes, may be at the mbarrier of another CTA, and only by `.shared::cluster`
// or a generic address.
void must_be_own(Warp& w, u32 address, u32 lane, const char* what) {
  Cta& c = cta_of(w, address);
  if (&c == w.cta) return;
  Fault f(EVO_PTX_SYNC, std::string(what) + " at the mbarrier of another CTA", static_cast<int>(lane));
  throw f.at(Space::SHARED, address, 8, "shared memory", address - c.base);
}

void init(Warp& w, const Ins& I, u32 m) {  // b: count slot
  const Cluster& cl = *w.cta->cluster;
  const Launch& L = *w.worker->launch;
  each_lane(m, [&](u32 l) {
    const u32 address = address_at(w, I, l);
    must_be_own(w, address, l, "mbarrier.init");
    const i64 count = w.u(I.b)[l];
    if (count < 1 || count > MAX_COUNT)
      throw Fault(
          EVO_PTX_BAD_OPERAND,
          "mbarrier.init: count " + std::to_string(count) + " is not in 1.." + std::to_string(MAX_COUNT),
          static_cast<int>(l));
    std::memset(shared_at<Access::WRITE>(w, address, 8), 0, 8);
    Cta& c = cta_of(w, address);
    u16& at = c.mbarrier_at[(address - c.base) >> 3];
    if (!at) {
      if (c.mbarriers.size() > 4096) throw Fault(EVO_PTX_BAD_OPERAND, "too many mbarriers");
      c.mbarriers.push_back(std::make_unique<Mbarrier>());
      at = static_cast<u16>(c.mbarriers.size());
    }
    Mbarrier& b = *c.mbarriers[at - 1u];
    const u32 index = at - 1u;
    b = Mbarrier{};
    b.alive = true;
    b.address = address;
    b.expected = b.pending = count;
    b.agent =
        c.rank * (cl.agents / static_cast<u32>(cl.ctas.size())) + L.warps_per_cta + index % MBARRIER_AGENTS;
    b.init_agent = w.agent, b.init_clock = w.clock[w.agent], b.init_pc = w.pc;
    b.current.assign(cl.clock_words, 0), b.done = b.current_near = b.done_near = b.current;
  });
}
void inval(Warp& w, const Ins& I, u32 m) {
  each_lane(m, [&](u32 l) {
    const u32 address = address_at(w, I, l);
    must_be_own(w, address, l, "mbarrier.inval");
    Mbarrier& b = mbarrier_at(w, address, l);
    Cta& c = cta_of(w, address);
    b.alive = false;
    c.mbarrier_at[(address - c.base) >> 3] = 0;
  });
}

void add_tx(Mbarrier& b, i64 bytes, u32 lane) {
  b.tx += bytes;
  if (b.tx > MAX_COUNT || b.tx < -MAX_COUNT)
    throw Fault(EVO_PTX_SYNC, "mbarrier: the transaction count leaves its range", static_cast<int>(lane));
}
u64 token(const Mbarrier& b) { return b.phase << 20 | static_cast<u64>(b.pending & MAX_COUNT); }

enum Arrive : u8 {
  DROP = 2,
  NO_COMPLETE = 4,
  RELAXED = 8,
  TX_ONLY = 16,
  COMPLETE = 32,
  NEAR = 64,
  OWN = 128
};
const char* name_of(u8 n) {
  if (n & TX_ONLY) return "mbarrier.expect_tx without .shared::cluster";
  return n & COMPLETE ? "mbarrier.complete_tx without .shared::cluster"
                      : "mbarrier.arrive without .shared::cluster";
}
// d: state slot + 1; b: tx slot + 1; c: count slot + 1; n: Arrive bits (NEAR: at the scope of the CTA; OWN:
// the mbarrier must be one of this CTA)
void arrive(Warp& w, const Ins& I, u32 m) {
  Cluster& cl = *w.cta->cluster;
  const bool race = w.worker->launch->race;
  each_lane(m, [&](u32 l) {
    const u32 address = address_at(w, I, l);
    if (I.n & OWN) must_be_own(w, address, l, name_of(I.n));
    if (I.d) must_be_own(w, address, l, "mbarrier.arrive that returns a state");
    Mbarrier& b = mbarrier_at(w, address, l);
    Cta& c = cta_of(w, address);
    const bool near = &c == w.cta;
    if (!near) visit(w, b);
    const u64 state = token(b);
    if (I.b)
      add_tx(b, I.n & COMPLETE ? -static_cast<i64>(w.u(I.b - 1)[l]) : static_cast<i64>(w.u(I.b - 1)[l]), l);
    if (!(I.n & (TX_ONLY | COMPLETE))) {
      const i64 count = I.c ? w.u(I.c - 1)[l] : 1;
      if (count < 1 || count > b.pending)
        throw Fault(EVO_PTX_SYNC,
                    "mbarrier: more arrivals than the phase expects (" + std::to_string(count) + " arrive, " +
                        std::to_string(b.pending) + " are pending of " + std::to_string(b.expected) + ")",
                    static_cast<int>(l));
      if (I.n & DROP) b.expected -= count;
      b.pending -= count;
      if ((I.n & NO_COMPLETE) && b.pending == 0)
        throw Fault(EVO_PTX_SYNC, "mbarrier.arrive.noComplete completes the phase", static_cast<int>(l));
      if (race && !(I.n & RELAXED) && (near || !(I.n & NEAR))) {
        join(b.current.data(), w.clock, cl.clock_words);
        if (near) join(b.current_near.data(), w.clock, cl.clock_words);
        b.foreign = join(b.foreign, w.foreign);
        join(b.fences, w.fences);
      }
    }
    if (I.d) w.w(I.d - 1)[l] = state;
    advance(cl, b);
  });
  if (race) w.clock[w.agent]++;
}

// cp.async.mbarrier.arrive: the arrival comes when the copies of the thread so far have landed. Late copies
// stay in flight until a warp asks for the phase.
void arrive_after_copies(Warp& w, const Ins& I, u32 m) {
  Cluster& cl = *w.cta->cluster;
  each_lane(m, [&](u32 l) {
    must_be_own(w, address_at(w, I, l), l, "cp.async.mbarrier.arrive");
    Mbarrier& b = mbarrier_at(w, address_at(w, I, l), l);
    if (!I.n) b.pending++;  // without .noinc the pending count grows by one first
    if (b.pending < 1)
      throw Fault(EVO_PTX_SYNC, "mbarrier: more arrivals than the phase expects", static_cast<int>(l));
    auto copy = std::make_shared<BulkCopy>();
    copy->lane = l, copy->pc = w.pc;
    copy->warp = &w;
    copy->clock.assign(w.clock, w.clock + cl.clock_words);
    copy->group = w.arrivals[l];  // the copies up to here
    b.in_flight.push_back(copy);
    if (!w.worker->launch->late_copies) land(w, b);
  });
  for (u32 l = 0; l < 32; l++) w.arrivals[l] += m >> l & 1;
  if (w.worker->launch->race) w.clock[w.agent]++;
}

// d: predicate; b: parity or state slot; n: 1 parity, 2 relaxed, 4 at the scope of the CTA. Late copies land
// when they are asked for a second time: a kernel that asks once and does not look at the answer reads too
// early.
void test_wait(Warp& w, const Ins& I, u32 m) {
  Cluster& cl = *w.cta->cluster;
  Mbarrier* early = nullptr;  // asked for the first time: the same answer for all lanes
  u32 r = 0;
  each_lane(m, [&](u32 l) {
    must_be_own(w, address_at(w, I, l), l, "a wait");
    Mbarrier& b = mbarrier_at(w, address_at(w, I, l), l);
    if ((I.n & 1) && w.u(I.b)[l] > 1)
      throw Fault(EVO_PTX_BAD_OPERAND,
                  "mbarrier: the parity of a phase is 0 or 1, not " + std::to_string(w.u(I.b)[l]),
                  static_cast<int>(l));
    auto complete = [&] {
      if (I.n & 1) return (b.phase & 1) != (w.u(I.b)[l] & 1);
      return b.phase != w.w(I.b)[l] >> 20;
    };
    if (!complete() && !b.in_flight.empty() && &b != early) {
      if (b.asked) land(w, b);
      else early = &b, cl.progress = true;
      b.asked = !b.asked;
    }
    if (!complete()) return;
    r |= 1u << l;
    if (b.phase > b.guest_phase) b.guests.clear();
    if (w.worker->launch->race && !(I.n & 2)) {
      const bool near = (I.n & 4) && cl.ctas.size() > 1;
      join(w.clock, (near ? b.done_near : b.done).data(), cl.clock_words);
      w.foreign = join(w.foreign, b.foreign);
      join(w.fences, b.fences);
    }
  });
  w.set_predicate(I.d, m, r);
  if (r != m) {
    w.waiting = true;
    w.worker->totals.mbarrier_waits++;
  }
}

u8 own(const Lower& x) { return x.has("shared") || x.has("shared::cta") ? OWN : 0; }

void make_mbarrier(Lower& x) {
  const std::string& what = x.word(1);
  if (what == "init") {
    x.address(x.operand(0));
    x.ins.b = x.from(1, "u32");
    x.set(init);
  } else if (what == "inval") {
    x.address(x.operand(0));
    x.set(inval);
  } else if (what == "test_wait" || what == "try_wait") {
    x.ins.d = x.predicate_to(x.operand(0));
    x.address(x.operand(1));
    const bool parity = x.has("parity");
    x.ins.b = x.from(2, parity ? "b32" : "b64");
    x.ins.n = static_cast<u8>((parity ? 1 : 0) | (x.has("relaxed") ? 2 : 0) | (x.has("cta") ? 4 : 0));
    x.set(test_wait);
  } else if (what == "expect_tx" || what == "complete_tx") {
    x.address(x.operand(0));
    x.ins.b = x.from(1, "u32") + 1;
    x.ins.n = static_cast<u8>((what == "expect_tx" ? TX_ONLY : COMPLETE) | own(x));
    x.set(arrive);
  } else if (what == "pending_count") {
    x.ins.d = x.to(0, "u32"), x.ins.a = x.from(1, "b64");
    x.set(op<u32, u64, u32, u32, LANES(u32(a & ((1u << 20) - 1)))>());
  } else {  // arrive, arrive_drop: {state,} [address] {, tx} {, count}
    size_t at = 0;
    if (x.operand(0).kind != Operand::MEMORY) {
      if (x.operand(0).kind != Operand::SINK) x.ins.d = x.to(0, "b64") + 1;
      at = 1;
    }
    x.address(x.operand(at++));
    if (x.has("expect_tx")) x.ins.b = x.from(at++, "u32") + 1;
    if (at < x.count()) x.ins.c = x.from(at, "u32") + 1;
    x.ins.n = static_cast<u8>((what == "arrive_drop" ? DROP : 0) | (x.has("noComplete") ? NO_COMPLETE : 0) |
                              (x.has("relaxed") ? RELAXED : 0) | (x.has("cta") ? NEAR : 0) | own(x));
    x.set(arrive);
  }
}
void make_arrive_after_copies(Lower& x) {
  x.address(x.operand(0));
  x.ins.n = x.has("noinc");
  x.set(arrive_after_copies);
}

#define SEMANTICS "?release|relaxed|acquire ?cta|cluster"
#define SHARED "?shared|shared::cta|shared::cluster"
#define OF_THIS_CTA "?shared|shared::cta"
const Row ROWS[] = {
    {"mbarrier .init " OF_THIS_CTA " .b64", Class::BARRIER, 0, make_mbarrier},
    {"mbarrier .inval " OF_THIS_CTA " .b64", Class::BARRIER, 0, make_mbarrier},
    {"mbarrier .arrive|arrive_drop ?expect_tx " SEMANTICS " " SHARED " .b64", Class::BARRIER, 1,
     make_mbarrier},
    {"mbarrier .arrive|arrive_drop .noComplete " SEMANTICS " " OF_THIS_CTA " .b64", Class::BARRIER, 1,
     make_mbarrier},
    {"mbarrier .expect_tx|complete_tx ?relaxed ?cta|cluster " SHARED " .b64", Class::BARRIER, 0,
     make_mbarrier},
    {"mbarrier .test_wait|try_wait ?parity ?acquire|relaxed ?cta|cluster " OF_THIS_CTA " .b64",
     Class::BARRIER, 1, make_mbarrier, "a time limit is ignored; a wait that fails lets other warps run"},
    {"mbarrier .pending_count .b64", Class::BARRIER, 1, make_mbarrier},
    {"cp .async .mbarrier .arrive ?noinc " OF_THIS_CTA " .b64", Class::BARRIER, 0, make_arrive_after_copies},
};
}  // namespace

extern const std::span<const Row> mbarrier_rows;
const std::span<const Row> mbarrier_rows{ROWS};
}  // namespace ptx

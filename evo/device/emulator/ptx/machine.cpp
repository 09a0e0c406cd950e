// Executing warps: the inner loop, divergence, and the bringing together of lanes for collectives.
#include "machine.hpp"

#include "memory.hpp"

namespace ptx {
namespace {

void park(Warp& w, u32 lanes, u32 pc) {
  each_lane(lanes, [&](u32 l) { w.lane_pc[l] = pc; });
}

bool anywhere(const Ins& I) { return I.flow == Flow::MEMBERS && (I.flags & 128); }

std::string lane_list(u32 lanes) {
  std::string s;
  for (u32 l = 0; l < 32;) {
    if (!(lanes >> l & 1)) {
      l++;
      continue;
    }
    u32 e = l;
    while (e + 1 < 32 && (lanes >> (e + 1) & 1)) e++;
    if (!s.empty()) s += ",";
    s += l == e ? std::to_string(l) : std::to_string(l) + "-" + std::to_string(e);
    l = e + 1;
  }
  return s;
}

[[noreturn]] void stuck(Warp& w) {
  const Program& p = *w.worker->launch->program;
  // Name two different places where lanes wait for each other.
  const u32 first = static_cast<u32>(std::countr_zero(w.live));
  const u32 pc = w.lane_pc[first];
  u32 here = 0, other = 0;
  u32 other_pc = 0;
  each_lane(w.live, [&](u32 l) {
    if (w.lane_pc[l] == pc) here |= 1u << l;
    else if (!other || w.lane_pc[l] == other_pc) other |= 1u << l, other_pc = w.lane_pc[l];
  });
  w.pc = pc;
  w.active = here;
  const Statement& s = *p.sources[p.code[pc].source].statement;
  std::string text = "lanes " + lane_list(here) + " wait at `" + s.op + "` for lanes that do not come";
  Fault f(EVO_PTX_SYNC, text, static_cast<int>(first));
  if (other) {
    f.text += ": lanes " + lane_list(other) + " wait elsewhere";
    f.against("lanes " + lane_list(other), other_pc);
  } else if (p.code[pc].flow == Flow::MEMBERS) {
    f.text += " (member mask " + hex(w.u(p.code[pc].members)[first]) + ")";
  }
  throw f;
}

// Lanes that wait in a collective and can go on now, because others have exited.
u32 released(Warp& w) {
  const Program& p = *w.worker->launch->program;
  u32 out = 0;
  each_lane(w.blocked, [&](u32 l) {
    if (out >> l & 1) return;
    const Ins& I = p.code[w.lane_pc[l]];
    const u32 need = (I.flow == Flow::MEMBERS ? w.u(I.members)[l] : FULL) & w.live;
    u32 here = 0;
    each_lane(w.blocked, [&](u32 k) {
      const Ins& J = p.code[w.lane_pc[k]];
      if (w.lane_pc[k] == w.lane_pc[l] || (anywhere(I) && anywhere(J))) here |= 1u << k;
    });
    if ((need & ~here) == 0) out |= need & here;
  });
  return out;
}

// The runnable lanes with the lowest pc become active.
void pick(Warp& w) {
  if (!(w.live & ~w.blocked)) {
    const u32 free = w.live ? released(w) : 0;
    if (!free) stuck(w);
    w.blocked &= ~free;
  }
  u32 best = ~0u, next = ~0u, mask = 0;
  each_lane(w.live & ~w.blocked, [&](u32 l) {
    const u32 p = w.lane_pc[l];
    if (p < best) next = best, best = p, mask = 1u << l;
    else if (p == best) mask |= 1u << l;
    else if (p < next) next = p;
  });
  w.pc = best, w.active = mask, w.limit = next;
}

// The active lanes spin. Other lanes of the warp that can run go first, even if they are further on.
void pick_other(Warp& w) {
  const u32 others = w.live & ~w.blocked & ~w.active;
  if (!others) return;
  u32 best = ~0u, mask = 0, next = ~0u;
  each_lane(others, [&](u32 l) {
    const u32 p = w.lane_pc[l];
    if (p < best) next = best, best = p, mask = 1u << l;
    else if (p == best) mask |= 1u << l;
    else if (p < next) next = p;
  });
  w.pc = best, w.active = mask, w.limit = next;
}

// The lanes `m` have arrived at a collective. Returns the lanes for which it may run now; 0 if they have to
// wait and others run.
u32 gather(Warp& w, const Ins& I, u32 m) {
  const Program& p = *w.worker->launch->program;
  const bool members = I.flow == Flow::MEMBERS;
  const u32 first = static_cast<u32>(std::countr_zero(m));
  const u32 named = members ? w.u(I.members)[first] : FULL;
  u32 group = m;
  if (members) {
    each_lane(m, [&](u32 l) {
      const u32 mask = w.u(I.members)[l];
      if (!(mask >> l & 1))
        throw Fault(EVO_PTX_SYNC,
                    "lane " + std::to_string(l) + " executes the instruction, but its member mask " +
                        hex(mask) + " does not name it",
                    static_cast<int>(l));
      if (mask != named) group &= ~(1u << l);
    });
  }
  u32 here = group;
  each_lane(w.blocked, [&](u32 l) {
    const Ins& J = p.code[w.lane_pc[l]];
    if ((w.lane_pc[l] == w.pc || (anywhere(I) && anywhere(J))) && (!members || w.u(J.members)[l] == named))
      here |= 1u << l;
  });
  const u32 need = named & w.live;
  return (need & ~here) == 0 ? here & need : 0;
}

// Registers that a wgmma uses may not be touched while it is in flight. After an ordinary access there must
// be a wgmma.fence before the next wgmma. A copied register inherits what happened to its source, because the
// compiler is free to give a value a new name. A constant may be written at any time.
void watch(Warp& w) {
  const Program& p = *w.worker->launch->program;
  const u32* t = &p.tracked_lists[p.track[w.pc]];
  const u32 reads = t[0], wrote = t[1];
  const bool move = t[2];
  if (!w.worker->launch->race) return;
  const u32 *read = t + 3, *written = read + reads;
  for (u32 i = 0; i < reads; i++) {
    if (w.pending[read[i]] & AS_ACCUMULATOR)
      throw Fault(EVO_PTX_PROXY,
                  "read of an accumulator of a wgmma that has not been waited for (wgmma.wait_group)");
    if (!move) w.touched[read[i]] |= READ;
  }
  for (u32 i = 0; i < wrote; i++) {
    const u32 r = written[i];
    if (w.pending[r])
      throw Fault(EVO_PTX_PROXY,
                  "write to a register that a wgmma in flight uses (wgmma.wait_group is missing or too lax)");
    if (!move) w.touched[r] |= WRITTEN;
    else if (reads)
      w.touched[r] = w.touched[*read] | (w.touched[r] & READ), w.accumulated[r] = w.accumulated[*read];
    else w.touched[r] &= READ;
  }
}

// ---- flows. Those that return a bool say whether the warp stops here, for another one to run.
bool branch(Warp& w, const Ins& I, u32 m) {
  if (m == w.active) {
    const bool back = static_cast<u32>(I.imm) <= w.pc;
    w.pc = static_cast<u32>(I.imm);
    if (!back || !(w.waiting | w.polling)) return false;
    park(w, w.active, w.pc);
    pick_other(w);
    return true;
  }
  if (m == 0) {
    w.pc++;
    return false;
  }
  w.worker->totals.divergent++;
  park(w, m, static_cast<u32>(I.imm));
  park(w, w.active & ~m, w.pc + 1);
  pick(w);
  return w.waiting | w.polling;
}

void jump(Warp& w, const Ins& I, u32 m) {
  I.full(w, I, m);
  park(w, w.active & ~m, w.pc + 1);
  pick(w);
}

void call(Warp& w, const Ins& I, u32 m) {
  each_lane(m, [&](u32 l) {
    if (w.returns[l].size() > 65536)
      throw Fault(EVO_PTX_OUT_OF_BOUNDS, "stack overflow: calls nested too deeply", static_cast<int>(l));
    w.returns[l].push_back(w.pc + 1);
  });
  park(w, w.active & ~m, w.pc + 1);
  park(w, m, static_cast<u32>(I.imm));
  pick(w);
}

void return_(Warp& w, u32 m) {
  each_lane(m, [&](u32 l) {
    w.lane_pc[l] = w.returns[l].back();
    w.returns[l].pop_back();
  });
  park(w, w.active & ~m, w.pc + 1);
  pick(w);
}

bool exit_(Warp& w, u32 m) {
  w.live &= ~m;
  w.active &= ~m;
  if (!w.live) {
    w.status = Status::DONE;
    return true;
  }
  if (w.active) w.pc++;
  else pick(w);
  return false;
}

// Out of line: inlined, it costs the loop of run_warp 4-8 % on kernels of plain arithmetic.
[[gnu::noinline]] bool bring_together(Warp& w, const Ins& I, u32 m) {
  const Program& p = *w.worker->launch->program;
  if (p.tracked && p.track[w.pc]) watch(w);
  const u32 run = gather(w, I, m);
  if (run == m && m == w.active && !w.blocked) {  // no other lane is waited for
    (m == FULL ? I.full : I.part)(w, I, m);
    w.pc++;
    return w.status != Status::READY;
  }
  // Lanes that the guard switches off go on. Lanes that have to wait stay.
  park(w, w.active & ~m, w.pc + 1);
  park(w, m & ~run, w.pc);
  w.blocked |= m & ~run;
  if (run) {
    w.active = run;
    I.part(w, I, run);
    w.blocked &= ~run;
    each_lane(run, [&](u32 l) { w.lane_pc[l] = anywhere(I) && !(m >> l & 1) ? w.lane_pc[l] + 1 : w.pc + 1; });
  }
  pick(w);
  return w.status != Status::READY;
}

bool collective(Warp& w, const Ins& I, u32 m) {
  // The frequent case: all live lanes arrive at once, and no register is watched.
  if (I.flow == Flow::ALIGNED && m == w.live && w.touched.empty()) {
    (m == FULL ? I.full : I.part)(w, I, m);
    w.pc++;
    return w.status != Status::READY;
  }
  return bring_together(w, I, m);
}

// Adds what a turn has executed to the totals, also when the turn ends with a fault.
struct Tally {
  Warp& w;
  const u64& executed;
  ~Tally() { w.cta->cluster->instructions += executed, w.worker->spent += executed; }
};

}  // namespace

void run_warp(Warp& w, u64 quantum) {
  const Program& p = *w.worker->launch->program;
  const Ins* code = p.code.data();
  Count* counts = w.worker->counts.data();
  u64 n = 0;
  const Tally tally{w, n};
  w.waiting = w.polling = w.yielded = false;
  w.quantum = quantum;
  while (n < w.quantum) {
    const Ins& I = code[w.pc];
    u32 m = w.active;
    if (I.guarded) {
      const u32 q = w.predicates[I.guard];
      m &= I.guarded == 1 ? q : ~q;
    }
    n++;
    if (m) {
      Count& c = counts[w.pc];
      c.executed++;
      c.lanes += static_cast<u32>(std::popcount(m));
    }
    switch (I.flow) {
      case Flow::TRACKED:
        if (m) watch(w);
        [[fallthrough]];
      case Flow::NEXT:
        if (m) (m == FULL ? I.full : I.part)(w, I, m);
        w.pc++;
        break;
      case Flow::BRANCH:
        if (branch(w, I, m)) return;
        break;
      case Flow::JUMP:
        if (m) jump(w, I, m);
        else w.pc++;
        break;
      case Flow::CALL:
        if (m) call(w, I, m);
        else w.pc++;
        break;
      case Flow::RETURN:
        if (m) return_(w, m);
        else w.pc++;
        break;
      case Flow::EXIT:
        if (exit_(w, m)) return;
        break;
      case Flow::ALIGNED:
      case Flow::MEMBERS:
        if (!m) w.pc++;
        else if (collective(w, I, m)) return;
        break;
    }
    if (w.pc >= w.limit) {
      park(w, w.active, w.pc);
      pick(w);
    }
  }
}

}  // namespace ptx

// Control flow: branches, calls with recursion, exit, trap.
#include <algorithm>

#include "builder.hpp"

namespace ptx {
namespace {

void nothing(Warp&, const Ins&, u32) {}

void copy_params(Warp& w, const Ins& I, u32 lanes) {  // ext: n, then (from, to, nbytes): local addresses
  const u32* e = w.ext + I.ext;
  const u32 per = w.worker->launch->program->local_bytes;
  each_lane(lanes, [&](u32 l) {
    u8* base = w.cta->local.data() + (size_t(w.id) * 32 + l) * per;
    u8* known = w.cta->local_init.data() + (size_t(w.id) * 32 + l) * per;
    for (u32 k = 0; k < e[0]; k++) {
      std::memmove(base + e[2 + 3 * k], base + e[1 + 3 * k], e[3 + 3 * k]);
      std::memmove(known + e[2 + 3 * k], known + e[1 + 3 * k], e[3 + 3 * k]);
    }
  });
}

// Recursion: the caller's frame is put aside for the lanes that call. ext: register begin and end, predicate
// begin and end, local begin and end; then n and the n result copies; then where the widths of the slots
// begin in ext.
constexpr size_t MAX_SAVED = 64u << 20;

void save_frame(Warp& w, const Ins& I, u32 lanes) {
  const u32* e = w.ext + I.ext;
  const u32 per = w.worker->launch->program->local_bytes;
  if (w.saved.size() > 4096)
    throw Fault(EVO_PTX_OUT_OF_BOUNDS, "stack overflow: recursion deeper than the interpreter allows");
  std::vector<u8> frame(4 + (e[1] - e[0]) + 4 * (e[3] - e[2]) + size_t(64) * (e[5] - e[4]));
  u8* p = frame.data();
  std::memcpy(p, &lanes, 4), p += 4;
  std::memcpy(p, w.registers + e[0], e[1] - e[0]), p += e[1] - e[0];
  std::memcpy(p, w.predicates + e[2], 4 * (e[3] - e[2])), p += 4 * (e[3] - e[2]);
  for (u32 l = 0; l < 32; l++) {
    const size_t at = (size_t(w.id) * 32 + l) * per + e[4];
    std::memcpy(p, w.cta->local.data() + at, e[5] - e[4]), p += e[5] - e[4];
    std::memcpy(p, w.cta->local_init.data() + at, e[5] - e[4]), p += e[5] - e[4];
  }
  w.saved.push_back(std::move(frame));
}

// Returns the lanes that it has restored.
u32 restore_newest(Warp& w, const Ins& I, u32 lanes) {
  const u32* e = w.ext + I.ext;
  const u32* results = e + 6;
  const u32 per = w.worker->launch->program->local_bytes;
  // Lanes that called together return here together, or one group after another. The newest frame that holds
  // them is theirs.
  size_t k = w.saved.size();
  u32 owners = 0;
  while (k > 0) {
    std::memcpy(&owners, w.saved[--k].data(), 4);
    if (owners & lanes) break;
  }
  if (!(owners & lanes)) throw Fault(EVO_PTX_INTERNAL, "no frame to restore after a recursive call");
  std::vector<u8>& frame = w.saved[k];
  const u8* regs = frame.data() + 4;
  const u8* preds = regs + (e[1] - e[0]);
  const u8* locals = preds + 4 * (e[3] - e[2]);
  const u32 size = e[5] - e[4];
  each_lane(lanes & owners, [&](u32 l) {
    u8* base = w.cta->local.data() + (size_t(w.id) * 32 + l) * per;
    u8* known = w.cta->local_init.data() + (size_t(w.id) * 32 + l) * per;
    std::vector<std::vector<u8>> kept;
    for (u32 i = 0; i < results[0]; i++)
      kept.emplace_back(base + results[1 + 3 * i], base + results[1 + 3 * i] + results[3 + 3 * i]);
    std::memcpy(base + e[4], locals + size_t(l) * 2 * size, size);
    std::memcpy(known + e[4], locals + size_t(l) * 2 * size + size, size);
    for (u32 i = 0; i < results[0]; i++) {
      std::memcpy(base + results[2 + 3 * i], kept[i].data(), kept[i].size());
      std::memset(known + results[2 + 3 * i], 1, kept[i].size());
    }
    // A lane takes 4 bytes of a 32-bit slot and 8 of a 64-bit one. The table of widths tells which kind
    // begins at `s`.
    for (u32 s = e[0]; s < e[1];) {
      const bool wide = w.ext[results[1 + 3 * results[0]] + (s - e[0]) / 128] == 64;
      const u32 size_of_lane = wide ? 8 : 4;
      std::memcpy(w.registers + s + l * size_of_lane, regs + (s - e[0]) + l * size_of_lane, size_of_lane);
      s += wide ? 256 : 128;
    }
    for (u32 q = e[2]; q < e[3]; q++) {
      u32 old;
      std::memcpy(&old, preds + 4 * (q - e[2]), 4);
      w.set_predicate(q, 1u << l, old);
    }
  });
  const u32 restored = owners & lanes;
  owners &= ~lanes;
  std::memcpy(frame.data(), &owners, 4);
  if (!owners) w.saved.erase(w.saved.begin() + static_cast<long>(k));
  return restored;
}
// Lanes that return together may have called separately.
void restore_frame(Warp& w, const Ins& I, u32 lanes) {
  while (lanes) lanes &= ~restore_newest(w, I, lanes);
}

void jump_index(Warp& w, const Ins& I, u32 lanes) {  // ext: n, targets
  const u32* e = w.ext + I.ext;
  each_lane(lanes, [&](u32 l) {
    const u32 k = w.u(I.a)[l];
    if (k >= e[0])
      throw Fault(EVO_PTX_BAD_OPERAND,
                  "brx.idx: index " + std::to_string(k) + " is past the end of the branch table",
                  static_cast<int>(l));
    w.lane_pc[l] = e[1 + k];
  });
}

void bra(Lower& x) {
  const i64 t = x.label(x.operand(0).symbol);
  x.ins.flow = Flow::BRANCH;
  Builder& b = x.builder();
  b.fixups_.push_back({static_cast<u32>(b.p_->code.size()), &x.function(), t});
  x.set(nothing);
}
void brx(Lower& x) {
  x.ins.a = x.from(0, "u32");
  Builder& b = x.builder();
  for (u32 scope = x.s.scope; scope != ~0u; scope = x.function().scope_parent[scope])
    if (auto it = x.function().branch_targets.find({scope, x.operand(1).symbol});
        it != x.function().branch_targets.end()) {
      x.ins.ext = x.push(static_cast<u32>(it->second.size()));
      for (auto& name : it->second) {
        b.ext_fixups_.push_back({x.here(), &x.function(), x.label(name)});
        x.push(0);
      }
      x.ins.flow = Flow::JUMP;
      x.set(jump_index);
      return;
    }
  x.unsupported("no branch table");
}
void ret(Lower& x) {
  x.ins.flow = x.function().entry ? Flow::EXIT : Flow::RETURN;
  x.set(nothing);
}
void exit_(Lower& x) {
  x.ins.flow = Flow::EXIT;
  x.set(nothing);
}
void trap(Lower& x) {
  x.set([](Warp& w, const Ins&, u32) {
    const Launch& launch = *w.worker->launch;
    bool asks = false;
    for (auto& s : launch.program->specials) asks |= s.name == "%envreg1";
    const bool alone = asks && !launch.config.cooperative;
    throw Fault(EVO_PTX_TRAP, std::string("the kernel executed a trap") +
                                  (alone ? ": grid.sync() needs a cooperative launch" : ""));
  });
}
void nop(Lower& x) { x.set(nothing); }

// ---- calls
struct CopyParam {  // from one place in local memory to another
  u32 from, to, nbytes;
};

// What the interpreter does itself, without a body in the module. Returns false if the function is none of
// these.
bool call_of_runtime(Lower& x, const std::string& name, const Operand& results) {
  if (name == "__assertfail") {
    x.set([](Warp&, const Ins&, u32) { throw Fault(EVO_PTX_TRAP, "a device assert failed"); });
    return true;
  }
  if (name != "vprintf") return false;
  x.set(nothing);  // the output of the kernel is dropped; the call returns 0
  for (auto& r : results.parts) {
    u32 off, size;
    if (!x.local_variable(r.symbol, off, size)) continue;
    x.ins.ext = x.push(off);
    x.push(size);
    x.set([](Warp& w, const Ins& I, u32 lanes) {
      const u32 per = w.worker->launch->program->local_bytes;
      const u32* e = w.ext + I.ext;
      each_lane(lanes, [&](u32 l) {
        const size_t at = (size_t(w.id) * 32 + l) * per + e[0];
        std::memset(w.cta->local.data() + at, 0, e[1]);
        std::memset(w.cta->local_init.data() + at, 1, e[1]);
      });
    });
  }
  return true;
}

// The copies between the .param variables of the call and those of the callee, in the direction of the call
// (`into`) or back.
std::vector<CopyParam> copies_of(Lower& x, const Function& callee, const Operand& list,
                                 const std::vector<Variable>& formal, bool into) {
  std::vector<CopyParam> out;
  if (list.parts.size() > formal.size()) x.unsupported("call with too many arguments");
  for (size_t i = 0; i < list.parts.size(); i++) {
    u32 off, size;
    const Operand& a = list.parts[i];
    if (a.kind == Operand::SINK) continue;
    if (a.kind != Operand::SYMBOL || !x.local_variable(a.symbol, off, size))
      x.unsupported("call argument is not a .param variable");
    auto& formal_at = x.builder().locals_.at({&callee, formal[i].name});
    const u32 n = std::min(size, formal_at.nbytes);
    if (into) out.push_back({off, formal_at.offset, n});
    else out.push_back({formal_at.offset, off, n});
  }
  return out;
}

u32 push_copies(Lower& x, const std::vector<CopyParam>& list) {
  const u32 at = x.push(static_cast<u32>(list.size()));
  for (auto& c : list) x.push(c.from), x.push(c.to), x.push(c.nbytes);
  return at;
}

bool reaches(Builder& b, const Function& from, const Function& to) {
  std::set<const Function*> seen{&from};
  std::vector<const Function*> todo{&from};
  while (!todo.empty()) {
    const Function* f = todo.back();
    todo.pop_back();
    for (auto* g : b.calls_[f])
      if (seen.insert(g).second) todo.push_back(g);
  }
  return seen.count(&to) > 0;
}

// The caller's frame as save_frame and restore_frame want it.
u32 push_frame(Lower& x, const std::vector<CopyParam>& results) {
  Builder& b = x.builder();
  auto& f = b.frames_.at(&x.function());
  const u32 at = x.push(f.register_begin);
  for (u32 v : {f.register_end, f.predicate_begin, f.predicate_end, f.local_begin, f.local_end}) x.push(v);
  push_copies(x, results);
  const u32 widths_at = x.push(0);
  b.p_->ext[widths_at] = x.here();
  std::map<u32, u32> width_at;
  auto& slots = b.slots_.at(&x.function());
  for (size_t r = 0; r < slots.size(); r++)
    if (slots[r] != ~0u && x.function().registers[r].width != 1)
      width_at[slots[r]] = x.function().registers[r].width == 64 ? 64 : 32;
  for (u32 s = f.register_begin; s < f.register_end; s += 128) x.push(width_at.count(s) ? width_at[s] : 32);
  return at;
}

void emit_with_guard(Lower& x, Fn fn, u32 ext) {
  Ins i;
  i.guard = x.ins.guard, i.guarded = x.ins.guarded;
  i.full = i.part = fn;
  i.ext = ext;
  x.builder().emit(x.function(), i, x.source);
}

// [copy arguments] call [copy results]. Where the callee may call this function again, the caller's frame is
// saved before and restored after.
void call(Lower& x) {
  Builder& b = x.builder();
  size_t k = 0;
  const Operand none;
  const bool has_results = x.count() > 1 && x.operand(0).kind == Operand::LIST;
  const Operand& results = has_results ? x.operand(k++) : none;
  const Operand& target = x.operand(k++);
  const Operand& arguments = k < x.count() && x.operand(k).kind == Operand::LIST ? x.operand(k) : none;
  // An indirect call would need the copies of every function that could be meant.
  if (target.kind != Operand::SYMBOL) x.unsupported("indirect call");
  if (call_of_runtime(x, target.symbol, results)) return;
  const u32 index = x.function_index(target.symbol);
  if (index == ~0u || !b.module_.functions[index].defined)
    x.unsupported("call of `" + target.symbol + "`, which this module does not define");
  const Function& callee = b.module_.functions[index];
  const std::vector<CopyParam> in = copies_of(x, callee, arguments, callee.params, true);
  const std::vector<CopyParam> out = copies_of(x, callee, results, callee.results, false);
  const bool recursive = reaches(b, callee, x.function());
  const u32 frame = recursive ? push_frame(x, out) : 0;
  if (recursive) emit_with_guard(x, save_frame, frame);
  if (!in.empty()) emit_with_guard(x, copy_params, push_copies(x, in));
  Ins jump = x.ins;
  jump.flow = Flow::CALL;
  jump.full = jump.part = nothing;
  b.fixups_.push_back({static_cast<u32>(b.p_->code.size()), &callee, -1});
  b.emit(x.function(), jump, x.source);
  x.set(nothing);
  if (recursive) {
    x.ins.ext = frame;
    x.set(restore_frame);
  } else if (!out.empty()) {
    x.ins.ext = push_copies(x, out);
    x.set(copy_params);
  }
}

const Row ROWS[] = {
    {"bra ?uni", Class::CONTROL, 0, bra},
    {"brx .idx ?uni", Class::CONTROL, 0, brx},
    {"call ?uni", Class::CONTROL, 0, call,
     "direct calls, recursion included; indirect calls are not supported; printf prints nothing"},
    {"ret ?uni", Class::CONTROL, 0, ret},
    {"exit", Class::CONTROL, 0, exit_},
    {"trap", Class::CONTROL, 0, trap},
    {"brkpt", Class::CONTROL, 0, trap},
    {"pmevent ?mask", Class::SPECIAL, 0, nop},
};
}  // namespace

extern const std::span<const Row> control_rows;
const std::span<const Row> control_rows{ROWS};

}  // namespace ptx

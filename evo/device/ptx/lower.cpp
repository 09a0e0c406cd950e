// Lowering of one entry point and the functions it can reach: match rows, find live ranges, give registers slots, emit.
#include <algorithm>
#include <set>

#include "lower.hpp"
#include "machine.hpp"

namespace ptx {

const char* class_name(Class c) {
  static const char* const names[] = {"int", "fp32", "fp16", "fp64", "mufu", "convert", "move", "predicate", "control", "load_global",
                                      "store_global", "load_shared", "store_shared", "load_local", "store_local", "load_const", "atomic",
                                      "async_copy", "matrix_move", "tensor", "warp", "barrier", "special"};
  static_assert(std::size(names) == static_cast<size_t>(Class::COUNT));
  return names[static_cast<size_t>(c)];
}

std::string hex(u64 v) {
  char t[24];
  snprintf(t, sizeof t, "0x%llx", static_cast<unsigned long long>(v));
  return t;
}

static std::string file_name(const Module& m, u32 file) {
  auto it = m.files.find(file);
  return it == m.files.end() ? "" : it->second;
}

std::string place_of(const Module& m, const Statement& s) {
  std::string text = "PTX line " + std::to_string(s.line);
  auto base = [&](u32 file) {
    const std::string f = file_name(m, file);
    const size_t slash = f.rfind('/');
    return slash == std::string::npos ? f : f.substr(slash + 1);
  };
  if (s.source_line) text += " (" + base(s.source_file) + ":" + std::to_string(s.source_line) + ")";
  return text;
}

namespace {
u32 up(u32 x, u32 align) { return (x + align - 1) / align * align; }

template <class F>
void registers_of(const Operand& o, F f) {
  if (o.reg >= 0) f(static_cast<u32>(o.reg));
  for (auto& p : o.parts) registers_of(p, f);
}
}  // namespace

// Builds the Program; Lower is its face towards the factories.
class Builder {
 public:
  Builder(const Module& module, const Function& entry) : module_(module), p_(std::make_unique<Program>()) {
    p_->module = &module;
    p_->entry = &entry;
  }

  std::unique_ptr<Program> build() {
    const Function& entry = *p_->entry;
    parameters(entry);
    if (!entry.defined) {
      p_->unsupported = "the entry has no body";
      return std::move(p_);
    }
    try {
      functions_ = reach(entry);
      match();
      shared_layout();
      for (auto* f : functions_) allocate(*f);
      p_->register_bytes = up(p_->frame_bytes, 64);
      p_->frame_bytes = p_->register_bytes;
      emit_all();
      p_->frame_bytes = up(p_->frame_bytes, 64);
      p_->local_bytes = up(local_bytes_, 16);
      if (p_->frame_bytes > (64u << 20)) throw Unsupported("too many registers");
    } catch (Unsupported& e) {
      p_->unsupported = e.what();
      if (p_->unsupported.empty()) p_->unsupported = "unsupported";
    }
    return std::move(p_);
  }

  const Module& module_;
  std::unique_ptr<Program> p_;
  std::vector<const Function*> functions_;
  struct Local { u32 offset, nbytes; };
  std::map<std::pair<const Function*, std::string>, Local> locals_;
  std::map<const Function*, std::vector<u32>> slots_;  // register -> byte offset, or predicate number
  std::map<const Function*, u32> start_;
  std::map<const Function*, std::vector<u32>> pc_of_;  // statement -> pc
  struct Frame { u32 register_begin, register_end, predicate_begin, predicate_end, local_begin, local_end; };
  std::map<const Function*, Frame> frames_;
  std::map<const Function*, std::set<const Function*>> calls_;
  std::map<std::pair<u32, u64>, u32> constants_;
  std::map<std::string, u32> shared_;                  // module-scope and function-scope shared variables -> offset
  struct Fixup { u32 pc; const Function* function; i64 statement; };
  std::vector<Fixup> fixups_;
  struct ExtFixup { u32 ext; const Function* function; i64 statement; };
  std::vector<ExtFixup> ext_fixups_;
  std::vector<std::pair<u32, const Function*>> code_fills_;
  std::map<const Function*, std::vector<const Row*>> rows_;
  std::map<const Function*, std::vector<i32>> tracked_of_;  // register -> tracked index, -1
  u32 local_bytes_ = LOCAL_BASE;
  u32 scratch_ = 0, scratch_predicate_ = 0;

  u32 new_slot(u32 width) {
    const u32 at = p_->frame_bytes;
    p_->frame_bytes += width == 64 ? 256 : 128;
    return at;
  }
  u32 scratch() {
    if (!scratch_) scratch_ = new_slot(64) + 1;
    return scratch_ - 1;
  }
  u32 scratch_predicate() {
    if (!scratch_predicate_) scratch_predicate_ = p_->predicates++;
    return scratch_predicate_;
  }
  u32 constant(u32 width, u64 value) {
    if (width < 64) value = static_cast<u32>(value), width = 32;
    auto [it, fresh] = constants_.try_emplace({width, value}, 0);
    if (fresh) {
      it->second = new_slot(width);
      p_->fills.push_back({Fill::VALUE, it->second, static_cast<u8>(width), value});
    }
    return it->second;
  }
  u32 fill(Fill::Kind kind, u32 width, u64 value, u32 index) {
    for (auto& f : p_->fills)
      if (f.kind == kind && f.width == width && f.value == value && f.index == index) return f.slot;
    const u32 slot = new_slot(width);
    p_->fills.push_back({kind, slot, static_cast<u8>(width), value, index});
    return slot;
  }
  u32 special(const std::string& name, u32 width) {
    for (auto& s : p_->specials)
      if (s.name == name && s.width == width) return s.slot;
    const u32 slot = new_slot(width);
    p_->specials.push_back({name, slot, static_cast<u8>(width)});
    return slot;
  }

  // What a symbol means as a value: the address of a variable or a special register.
  u32 symbol(const Function& f, const Operand& o, u32 width) {
    const std::string& n = o.symbol;
    const u64 off = o.imm;
    if (auto it = locals_.find({&f, n}); it != locals_.end()) {
      const bool is_param = is_param_variable(f, n);
      return constant(width, it->second.offset + off + (is_param ? LOCAL_WINDOW : 0));
    }
    if (n[0] == '%' || n == "WARP_SZ") {
      if (n == "WARP_SZ") return constant(width, 32);
      return special(n, width);
    }
    if (auto it = shared_.find(n); it != shared_.end()) return fill(Fill::SHARED_ADDRESS, width, it->second + off, 0);
    if (f.entry)
      for (auto& p : p_->params)
        if (p.name == n) return fill(Fill::PARAM_ADDRESS, width, p.offset + off, 0);
    if (auto it = module_.variable_index.find(n); it != module_.variable_index.end()) {
      const Variable& v = module_.variables[it->second];
      if (v.space == Space::SHARED) return fill(Fill::DYNAMIC_SHARED, width, off, 0);
      if (v.external) throw Unsupported("external variable `" + n + "`");
      return fill(Fill::SYMBOL_ADDRESS, width, off, it->second);
    }
    if (auto it = module_.function_index.find(n); it != module_.function_index.end()) {
      const u32 slot = new_slot(width);
      code_fills_.push_back({static_cast<u32>(p_->fills.size()), &module_.functions[it->second]});
      p_->fills.push_back({Fill::CODE, slot, static_cast<u8>(width), 0});
      return slot;
    }
    throw Unsupported("unknown symbol `" + n + "`");
  }

  static bool is_param_variable(const Function& f, const std::string& name) {
    for (auto* list : {&f.params, &f.results, &f.locals})
      for (auto& v : *list)
        if (v.name == name) return v.space == Space::PARAM;
    return false;
  }

 private:
  void parameters(const Function& entry) {
    u32 at = 0;
    for (auto& v : entry.params) {
      if (v.nbytes > 32764) throw SyntaxError(entry.line, "parameter too large");
      at = up(at, std::max(1u, v.align));
      p_->params.push_back({v.name, at, static_cast<u32>(v.nbytes), v.align});
      at += static_cast<u32>(v.nbytes);
      if (at > 1 << 16) throw SyntaxError(entry.line, "parameter block too large");
    }
    p_->param_nbytes = at;
  }

  // Callees first, so that lanes in a callee have the lower pc and run before those that wait for them.
  std::vector<const Function*> reach(const Function& entry) {
    std::vector<const Function*> order;
    std::set<const Function*> seen;
    std::vector<std::pair<const Function*, size_t>> stack;
    auto visit = [&](const Function* f) {
      if (!seen.insert(f).second) return;
      auto& calls = calls_[f];
      for (auto& s : f->body) {
        for (auto& o : s.operands) {
          if (o.kind != Operand::SYMBOL) continue;
          auto it = module_.function_index.find(o.symbol);
          if (it != module_.function_index.end() && module_.functions[it->second].defined) calls.insert(&module_.functions[it->second]);
        }
        if (s.words[0] == "call" && !s.operands.empty()) {
          const Operand& target = s.operands[s.operands[0].kind == Operand::LIST && s.operands.size() > 1 ? 1 : 0];
          if (target.kind == Operand::REG)
            for (auto& g : module_.functions)
              if (!g.entry && g.defined) calls.insert(&g);
        }
      }
      stack.push_back({f, 0});
    };
    visit(&entry);
    while (!stack.empty()) {
      auto& [f, k] = stack.back();
      auto& calls = calls_[f];
      if (k < calls.size()) {
        auto it = std::next(calls.begin(), static_cast<long>(k++));
        visit(*it);
      } else {
        order.push_back(f);
        stack.pop_back();
      }
    }
    return order;
  }

  void match() {
    for (auto* f : functions_) {
      auto& rows = rows_[f];
      for (auto& s : f->body) {
        const Row* row = find_row(s);
        if (!row) throw Unsupported(place_of(module_, s) + ": unsupported instruction `" + s.op + "`");
        rows.push_back(row);
        if (s.words[0] == "wgmma" || (s.words[0] == "cp" && s.words.size() > 2 && (s.words[2] == "bulk" || s.words[1] == "reduce")))
          p_->async_proxy = true;
        if (s.words[0] == "mbarrier" || s.op.find("mbarrier") != std::string::npos || s.words[0] == "st" || s.words[0] == "red")
          p_->mbarriers |= s.op.find("mbarrier") != std::string::npos;
      }
    }
  }

  void shared_layout() {
    std::set<std::string> used;
    for (auto* f : functions_) {
      for (auto& s : f->body)
        for (auto& o : s.operands) symbols_of(o, used);
      u32 local = local_bytes_;
      auto place = [&](const Variable& v) {
        if (v.nbytes > 16u << 20) throw Unsupported("local variable `" + v.name + "` is too large");
        local = up(local, std::max(1u, v.align));
        locals_[{f, v.name}] = {local, static_cast<u32>(v.nbytes)};
        local += static_cast<u32>(v.nbytes);
        if (local > 64u << 20) throw Unsupported("local memory is too large");
      };
      frames_[f].local_begin = local;
      if (!f->entry)
        for (auto* list : {&f->params, &f->results})
          for (auto& v : *list) place(v);
      for (auto& v : f->locals)
        if (v.space != Space::SHARED) place(v);
      local_bytes_ = up(local, 16);
      frames_[f].local_end = local_bytes_;
      for (auto& v : f->locals)
        if (v.space == Space::SHARED) place_shared(v);
    }
    // Symbols in initialisers do not reach shared memory, so names in the code are all there is.
    for (auto& v : module_.variables)
      if (v.space == Space::SHARED && used.count(v.name)) {
        if (v.unsized || v.external) {
          p_->dynamic_align = std::max(p_->dynamic_align, std::max(1u, v.align));
        } else {
          place_shared(v);
        }
      }
    p_->dynamic_offset = p_->dynamic_align ? up(p_->static_smem, p_->dynamic_align) : p_->static_smem;
  }
  void place_shared(const Variable& v) {
    if (v.nbytes > MAX_SHARED) throw Unsupported("shared variable `" + v.name + "` is too large");
    p_->static_smem = up(p_->static_smem, std::max(1u, v.align));
    shared_[v.name] = p_->static_smem;
    p_->static_smem += static_cast<u32>(v.nbytes);
    if (p_->static_smem > MAX_SHARED) throw Unsupported("too much shared memory");
  }
  static void symbols_of(const Operand& o, std::set<std::string>& out) {
    if (o.kind == Operand::SYMBOL) out.insert(o.symbol);
    for (auto& p : o.parts) symbols_of(p, out);
  }

  // Live ranges by basic blocks, then a linear scan. Safe under divergence: a lane only follows its own path, and
  // handlers write active lanes only. Registers of wgmma keep a slot of their own, they are written asynchronously.
  void allocate(const Function& f) {
    const size_t R = f.registers.size(), N = f.body.size();
    auto& slot = slots_[&f];
    slot.assign(R, ~0u);
    Frame& frame = frames_[&f];
    frame.predicate_begin = p_->predicates;
    frame.register_begin = p_->frame_bytes;
    for (size_t r = 0; r < R; r++)
      if (f.registers[r].width == 1) slot[r] = p_->predicates++;
    frame.predicate_end = p_->predicates;
    auto& rows = rows_[&f];
    track_wgmma(f);

    std::vector<u8> leader(N + 1, 0);
    std::vector<std::vector<u32>> targets(N);
    leader[0] = 1;
    for (size_t i = 0; i < N; i++) {
      const Statement& s = f.body[i];
      if (s.words[0] == "bra" || s.words[0] == "brx") {
        for (auto& name : branch_names(f, s)) {
          const i64 t = f.find_label(s.scope, name);
          if (t < 0) throw Unsupported(place_of(module_, s) + ": unknown label `" + name + "`");
          targets[i].push_back(static_cast<u32>(t));
          if (static_cast<size_t>(t) <= N) leader[static_cast<size_t>(t)] = 1;
        }
        leader[i + 1] = 1;
      } else if (s.words[0] == "ret" || s.words[0] == "exit") {
        leader[i + 1] = 1;
      }
    }
    std::vector<u32> begin, block(N);
    for (size_t i = 0; i < N; i++) {
      if (leader[i]) begin.push_back(static_cast<u32>(i));
      block[i] = static_cast<u32>(begin.size() - 1);
    }
    const size_t B = begin.size(), W = (R + 63) / 64;
    begin.push_back(static_cast<u32>(N));
    if (B * W > (u64(64) << 20)) throw Unsupported("function too large");
    std::vector<u64> use(B * W), def(B * W), in(B * W);
    auto bit = [&](std::vector<u64>& v, size_t b, u32 r) -> void { v[b * W + r / 64] |= u64(1) << (r % 64); };
    auto test = [&](const std::vector<u64>& v, size_t b, u32 r) { return v[b * W + r / 64] >> (r % 64) & 1; };
    auto visit = [&](size_t i, auto on_use, auto on_def) {
      const Statement& s = f.body[i];
      const bool wg = s.words[0] == "wgmma";
      const bool defines = rows[i]->defs && !s.operands.empty() && s.operands[0].kind != Operand::MEMORY;
      // Uses first: `add r, r, 1` reads the r that was live before.
      for (size_t k = 0; k < s.operands.size(); k++)
        if (k > 0 || !defines || wg || s.guard >= 0) registers_of(s.operands[k], on_use);
      if (defines) registers_of(s.operands[0], on_def);
    };
    for (size_t b = 0; b < B; b++)
      for (size_t i = begin[b]; i < begin[b + 1]; i++)
        visit(i, [&](u32 r) { if (!test(def, b, r)) bit(use, b, r); }, [&](u32 r) { bit(def, b, r); });
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = B; b-- > 0;) {
        const size_t last = begin[b + 1] - 1;
        const Statement& s = f.body[last];
        const bool ends = s.guard < 0 && (s.words[0] == "bra" || s.words[0] == "brx" || s.words[0] == "ret" || s.words[0] == "exit");
        for (size_t k = 0; k < W; k++) {
          u64 out = ends || b + 1 >= B ? 0 : in[(b + 1) * W + k];
          for (u32 t : targets[last])
            if (t < N) out |= in[block[t] * W + k];
          const u64 v = use[b * W + k] | (out & ~def[b * W + k]);
          if (v != in[b * W + k]) in[b * W + k] = v, changed = true;
        }
      }
    }
    std::vector<u32> first(R, ~0u), last(R, 0);
    auto touch = [&](u32 r, size_t i) {
      first[r] = std::min(first[r], static_cast<u32>(i));
      last[r] = std::max(last[r], static_cast<u32>(i));
    };
    for (size_t b = 0; b < B; b++) {
      for (size_t k = 0; k < W; k++)
        for (u64 m = in[b * W + k]; m; m &= m - 1) {
          const u32 r = static_cast<u32>(k * 64 + static_cast<size_t>(std::countr_zero(m)));
          touch(r, begin[b]);
          // Live into b means live out of its predecessors.
          if (b > 0) touch(r, begin[b] - 1);
        }
      const size_t end = begin[b + 1] - 1;
      for (u32 t : targets[end])
        if (t < N)
          for (size_t k = 0; k < W; k++)
            for (u64 m = in[block[t] * W + k]; m; m &= m - 1) touch(static_cast<u32>(k * 64 + static_cast<size_t>(std::countr_zero(m))), end);
      for (size_t i = begin[b]; i < begin[b + 1]; i++) visit(i, [&](u32 r) { touch(r, i); }, [&](u32 r) { touch(r, i); });
    }
    auto& tracked = tracked_of_[&f];
    std::vector<u32> order;
    for (u32 r = 0; r < R; r++)
      if (first[r] != ~0u && f.registers[r].width != 1) order.push_back(r);
    std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return first[a] < first[b]; });
    for (u32 width : {32u, 64u}) {
      std::multimap<u32, u32> busy;  // last use -> slot
      std::vector<u32> spare;
      for (u32 r : order) {
        if ((f.registers[r].width == 64) != (width == 64)) continue;
        if (!tracked.empty() && tracked[r] >= 0) {
          slot[r] = new_slot(width);
          continue;
        }
        while (!busy.empty() && busy.begin()->first < first[r]) {
          spare.push_back(busy.begin()->second);
          busy.erase(busy.begin());
        }
        if (spare.empty()) {
          slot[r] = new_slot(width);
        } else {
          slot[r] = spare.back();
          spare.pop_back();
        }
        busy.emplace(last[r], slot[r]);
      }
    }
    frame.register_end = p_->frame_bytes;
  }

  // Registers that wgmma reads or writes, and those that reach them through plain moves.
  void track_wgmma(const Function& f) {
    auto& tracked = tracked_of_[&f];
    std::vector<u8> mark;
    auto set = [&](u32 r) {
      if (mark.empty()) mark.assign(f.registers.size(), 0);
      if (f.registers[r].width == 1 || mark[r]) return false;
      mark[r] = 1;
      return true;
    };
    for (auto& s : f.body)
      if (s.words[0] == "wgmma" && s.words.size() > 1 && s.words[1] == "mma_async")
        for (size_t k = 0; k < 2 && k < s.operands.size(); k++)
          if (s.operands[k].kind == Operand::VECTOR) registers_of(s.operands[k], set);
    if (mark.empty()) return;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto& s : f.body)
        if (s.words[0] == "mov" && s.operands.size() == 2 && s.operands[0].kind == Operand::REG && s.operands[1].kind == Operand::REG &&
            mark[static_cast<size_t>(s.operands[0].reg)] && f.registers[static_cast<size_t>(s.operands[1].reg)].width != 1)
          changed |= set(static_cast<u32>(s.operands[1].reg));
    }
    tracked.assign(f.registers.size(), -1);
    for (size_t r = 0; r < mark.size(); r++)
      if (mark[r]) tracked[r] = static_cast<i32>(p_->tracked++);
  }

  std::vector<std::string> branch_names(const Function& f, const Statement& s) const {
    if (s.words[0] == "bra") {
      if (s.operands.empty() || s.operands[0].kind != Operand::SYMBOL) throw Unsupported(place_of(module_, s) + ": malformed branch");
      return {s.operands[0].symbol};
    }
    if (s.operands.size() == 2 && s.operands[1].kind == Operand::SYMBOL)
      for (u32 scope = s.scope; scope != ~0u; scope = f.scope_parent[scope])
        if (auto it = f.branch_targets.find({scope, s.operands[1].symbol}); it != f.branch_targets.end()) return it->second;
    throw Unsupported(place_of(module_, s) + ": brx.idx without .branchtargets");
  }

  void emit_all() {
    for (auto* f : functions_) {
      start_[f] = static_cast<u32>(p_->code.size());
      auto& pcs = pc_of_[f];
      auto& rows = rows_[f];
      for (size_t i = 0; i < f->body.size(); i++) {
        const Statement& s = f->body[i];
        pcs.push_back(static_cast<u32>(p_->code.size()));
        try {
          Lower x(*this, *f, s);
          x.source.statement = &s;
          x.source.function = f;
          x.source.cls = rows[i]->cls;
          guard(*f, s, x.ins);
          rows[i]->make(x);
          if (!x.ins.full) throw Unsupported("unsupported form");
          emit(*f, x.ins, x.source);
        } catch (Unsupported& e) {
          throw Unsupported(place_of(module_, s) + ": `" + s.text.substr(0, 120) + "`: " + e.what());
        } catch (std::out_of_range&) {
          throw Unsupported(place_of(module_, s) + ": `" + s.text.substr(0, 120) + "`: too few operands");
        }
      }
      pcs.push_back(static_cast<u32>(p_->code.size()));
    }
    for (auto& x : fixups_) p_->code[x.pc].imm = static_cast<i32>(x.statement < 0 ? start_.at(x.function) : pc_of_.at(x.function).at(static_cast<size_t>(x.statement)));
    for (auto& x : ext_fixups_) p_->ext[x.ext] = pc_of_.at(x.function).at(static_cast<size_t>(x.statement));
    for (auto& [fill, f] : code_fills_) {
      auto it = start_.find(f);
      if (it == start_.end()) throw Unsupported("address of function `" + f->name + "` which is not defined");
      p_->fills[fill].value = it->second;
    }
    p_->start = start_.at(p_->entry);
    p_->track.resize(p_->code.size(), 0);
  }

 public:
  void guard(const Function& f, const Statement& s, Ins& ins) {
    if (s.guard < 0) return;
    ins.guard = slots_.at(&f).at(static_cast<size_t>(s.guard));
    ins.guarded = s.guard_negated ? 2 : 1;
  }
  void emit(const Function& f, Ins ins, Source source) {
    ins.source = static_cast<u32>(p_->sources.size());
    p_->sources.push_back(source);
    track(f, *source.statement, ins);
    p_->code.push_back(ins);
  }

 private:
  void track(const Function& f, const Statement& s, Ins& ins) {
    auto& tracked = tracked_of_[&f];
    p_->track.resize(p_->code.size() + 1, 0);
    if (tracked.empty() || s.words[0] == "wgmma") return;
    std::vector<u32> reads, writes;
    const Row* row = find_row(s);
    for (size_t k = 0; k < s.operands.size(); k++) {
      const bool is_def = row->defs && k == 0 && s.operands[k].kind != Operand::MEMORY;
      registers_of(s.operands[k], [&](u32 r) {
        if (tracked[r] >= 0) (is_def ? writes : reads).push_back(static_cast<u32>(tracked[r]));
      });
    }
    if (reads.empty() && writes.empty()) return;
    const bool move = s.words[0] == "mov" && s.operands.size() == 2 && s.operands[0].kind == Operand::REG;
    if (ins.flow == Flow::NEXT) ins.flow = Flow::TRACKED;
    auto& list = p_->tracked_lists;
    if (list.empty()) list.push_back(0);
    p_->track.back() = static_cast<u32>(list.size());
    list.push_back(static_cast<u32>(reads.size()));
    list.push_back(static_cast<u32>(writes.size()));
    list.push_back(move ? 1 : 0);
    list.insert(list.end(), reads.begin(), reads.end());
    list.insert(list.end(), writes.begin(), writes.end());
  }
};

// ------------------------------------------------------------------------------------------ Lower
bool Lower::has(std::string_view w) const { return std::find(s.words.begin() + 1, s.words.end(), w) != s.words.end(); }
const Operand& Lower::operand(size_t i) const { return s.operands.at(i); }
Program& Lower::program() { return *builder_.p_; }
u32 Lower::here() const { return static_cast<u32>(builder_.p_->ext.size()); }
u32 Lower::push(u32 v) {
  builder_.p_->ext.push_back(v);
  return here() - 1;
}
u32 Lower::constant(u32 width, u64 value) { return builder_.constant(width, value); }
u32 Lower::width(const Operand& o) const { return o.kind == Operand::REG ? function_.registers[static_cast<size_t>(o.reg)].width : 0; }

u32 Lower::to(const Operand& o, std::string_view type) {
  if (o.kind == Operand::SINK) return builder_.scratch();
  if (o.kind != Operand::REG) unsupported("the destination is not a register");
  const u32 want = width_of(type), have = width(o);
  if (have == 1 || (want == 64) != (have == 64)) unsupported("register `" + function_.registers[static_cast<size_t>(o.reg)].name + "` has the wrong width for ." + std::string(type));
  return builder_.slots_.at(&function_)[static_cast<size_t>(o.reg)];
}

u32 Lower::from(const Operand& o, std::string_view type) {
  const u32 want = width_of(type);
  switch (o.kind) {
    case Operand::REG: return to(o, type);
    case Operand::SYMBOL: return builder_.symbol(function_, o, want == 64 ? 64 : 32);
    case Operand::IMM: {
      u64 v = o.imm;
      const bool f32 = type == "f32" || type == "tf32", f64 = type == "f64";
      if (o.is_float && !o.single && !f64) v = bits<u32>(static_cast<float>(bits<double>(v)));
      if (o.is_float && o.single && f64) v = bits<u64>(static_cast<double>(bits<float>(static_cast<u32>(v))));
      if (!o.is_float && f32) v = bits<u32>(static_cast<float>(static_cast<i64>(v)));
      if (!o.is_float && f64) v = bits<u64>(static_cast<double>(static_cast<i64>(v)));
      if (want == 16) v = static_cast<u16>(v);
      if (want == 8) v = static_cast<u8>(v);
      return builder_.constant(want == 64 ? 64 : 32, v);
    }
    default: unsupported("unsupported operand");
  }
}

u32 Lower::predicate(const Operand& o, bool* negated) {
  if (negated) *negated = o.negated;
  else if (o.negated) unsupported("negated predicate");
  if (o.kind == Operand::IMM) return o.imm ? 1 : 0;
  if (o.kind != Operand::REG || width(o) != 1) unsupported("expected a predicate");
  return builder_.slots_.at(&function_)[static_cast<size_t>(o.reg)];
}
u32 Lower::predicate_to(const Operand& o) {
  if (o.kind == Operand::SINK) return builder_.scratch_predicate();
  if (o.kind != Operand::REG) unsupported("expected a predicate");
  return predicate(o);
}
u64 Lower::immediate(size_t i) const {
  const Operand& o = operand(i);
  if (o.kind != Operand::IMM || o.is_float) unsupported("operand " + std::to_string(i) + " must be an integer constant");
  return o.imm;
}

u32 Lower::tracked(const Operand& o) const {
  const auto& list = builder_.tracked_of_.at(&function_);
  return o.kind == Operand::REG && !list.empty() ? static_cast<u32>(list[static_cast<size_t>(o.reg)] + 1) : 0;
}

void Lower::address(const Operand& o) {
  if (o.kind != Operand::MEMORY || o.parts.empty()) unsupported("expected an address");
  const Operand& base = o.parts[0];
  const i64 off = static_cast<i64>(o.imm);
  if (off != static_cast<i32>(off)) unsupported("address offset too large");
  ins.imm = static_cast<i32>(off);
  if (base.kind == Operand::REG) {
    const bool wide = width(base) == 64;
    if (width(base) < 32) unsupported("the address register is too narrow");
    ins.a = to(base, wide ? "b64" : "b32");
    if (wide) ins.flags |= ADDRESS_WIDE;
  } else {
    ins.a = from(base, "b64");
    ins.flags |= ADDRESS_WIDE;
  }
}

void Lower::push_all(const Operand& o, std::string_view type, bool destination) {
  if (o.kind == Operand::VECTOR) {
    for (auto& e : o.parts) push(destination ? to(e, type) : from(e, type));
  } else {
    push(destination ? to(o, type) : from(o, type));
  }
}

bool Lower::local_variable(const std::string& name, u32& offset, u32& nbytes) const {
  auto it = builder_.locals_.find({&function_, name});
  if (it == builder_.locals_.end()) return false;
  offset = it->second.offset, nbytes = it->second.nbytes;
  return true;
}
const Program::Param* Lower::kernel_param(const std::string& name) const {
  if (!function_.entry) return nullptr;
  for (auto& p : builder_.p_->params)
    if (p.name == name) return &p;
  return nullptr;
}
u32 Lower::param_slot(u32 offset, u32 nbytes, bool is_signed, u32 width) {
  return builder_.fill(Fill::PARAM, width, offset, nbytes | (is_signed ? 0x80u : 0));
}
i64 Lower::label(const std::string& name) const { return function_.find_label(s.scope, name); }
u32 Lower::function_index(const std::string& name) const {
  auto it = builder_.module_.function_index.find(name);
  return it == builder_.module_.function_index.end() ? ~0u : it->second;
}

// ------------------------------------------------------------------------------------------ control flow
// These need the builder's fixups, so they live here and not with the other families.
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

// Recursion: the frame of the caller is put aside for the lanes that call. ext: register begin, end, predicate begin,
// end, local begin, end, then (with the result copies) n and triples.
constexpr size_t MAX_SAVED = 64u << 20;

void save_frame(Warp& w, const Ins& I, u32 lanes) {
  const u32* e = w.ext + I.ext;
  const u32 per = w.worker->launch->program->local_bytes;
  if (w.saved.size() > 4096) throw Fault(EVO_PTX_OUT_OF_BOUNDS, "stack overflow: recursion deeper than the interpreter allows");
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

u32 restore_newest(Warp& w, const Ins& I, u32 lanes) {  // returns the lanes it has restored
  const u32* e = w.ext + I.ext;
  const u32* results = e + 6;
  const u32 per = w.worker->launch->program->local_bytes;
  // Lanes that called together return here together or one group after another: the newest frame that holds them.
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
    for (u32 i = 0; i < results[0]; i++) kept.emplace_back(base + results[1 + 3 * i], base + results[1 + 3 * i] + results[3 + 3 * i]);
    std::memcpy(base + e[4], locals + size_t(l) * 2 * size, size);
    std::memcpy(known + e[4], locals + size_t(l) * 2 * size + size, size);
    for (u32 i = 0; i < results[0]; i++) {
      std::memcpy(base + results[2 + 3 * i], kept[i].data(), kept[i].size());
      std::memset(known + results[2 + 3 * i], 1, kept[i].size());
    }
    // 32-bit and 64-bit slots: which one a byte belongs to does not matter for copying whole lanes of 4-byte columns,
    // because both kinds are multiples of 128 bytes; 64-bit slots are copied lane by lane through the width table.
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
void restore_frame(Warp& w, const Ins& I, u32 lanes) {  // lanes that return together may have called separately
  while (lanes) lanes &= ~restore_newest(w, I, lanes);
}


void jump_index(Warp& w, const Ins& I, u32 lanes) {  // ext: n, targets
  const u32* e = w.ext + I.ext;
  each_lane(lanes, [&](u32 l) {
    const u32 k = w.u(I.a)[l];
    if (k >= e[0]) throw Fault(EVO_PTX_BAD_OPERAND, "brx.idx: index " + std::to_string(k) + " is past the end of the branch table", static_cast<int>(l));
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
    if (auto it = x.function().branch_targets.find({scope, x.operand(1).symbol}); it != x.function().branch_targets.end()) {
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
  x.set([](Warp&, const Ins&, u32) { throw Fault(EVO_PTX_TRAP, "the kernel executed a trap"); });
}
void nop(Lower& x) { x.set(nothing); }

// [copy arguments] call [copy results], with the caller's frame saved around it where the callee can call it again.
void call(Lower& x) {
  Builder& b = x.builder();
  const Module& m = b.module_;
  size_t k = 0;
  const Operand none;
  const Operand* results = &none;
  const Operand* arguments = &none;
  if (x.count() > 1 && x.operand(0).kind == Operand::LIST) results = &x.operand(k++);
  const Operand& target = x.operand(k++);
  if (k < x.count() && x.operand(k).kind == Operand::LIST) arguments = &x.operand(k);
  const Function* callee = nullptr;
  if (target.kind == Operand::SYMBOL) {
    const u32 i = x.function_index(target.symbol);
    if (target.symbol == "__assertfail") {
      x.set([](Warp&, const Ins&, u32) { throw Fault(EVO_PTX_TRAP, "a device assert failed"); });
      return;
    }
    if (target.symbol == "vprintf") {  // output of the kernel is dropped; the call returns 0
      x.set(nothing);
      for (auto& r : results->parts) {
        u32 off, size;
        if (!x.local_variable(r.symbol, off, size)) continue;
        x.ins.ext = x.push(off);
        x.push(size);
        x.set([](Warp& w, const Ins& I, u32 lanes) {
          const u32 per = w.worker->launch->program->local_bytes;
          each_lane(lanes, [&](u32 l) {
            std::memset(w.cta->local.data() + (size_t(w.id) * 32 + l) * per + w.ext[I.ext], 0, w.ext[I.ext + 1]);
            std::memset(w.cta->local_init.data() + (size_t(w.id) * 32 + l) * per + w.ext[I.ext], 1, w.ext[I.ext + 1]);
          });
        });
      }
      return;
    }
    if (i == ~0u || !m.functions[i].defined) x.unsupported("call of `" + target.symbol + "`, which this module does not define");
    callee = &m.functions[i];
  }
  // An indirect call passes its arguments by position; all candidates share the layout of their prototype, so copies
  // are resolved against every function that could be meant: only supported when there is one candidate per shape.
  if (!callee) x.unsupported("indirect call");
  auto pairs = [&](const Operand& list, const std::vector<Variable>& formal, bool into) {
    std::vector<CopyParam> out;
    if (list.parts.size() > formal.size()) x.unsupported("call with too many arguments");
    for (size_t i = 0; i < list.parts.size(); i++) {
      u32 off, size;
      const Operand& a = list.parts[i];
      if (a.kind == Operand::SINK) continue;
      if (a.kind != Operand::SYMBOL || !x.local_variable(a.symbol, off, size)) x.unsupported("call argument is not a .param variable");
      auto& formal_at = b.locals_.at({callee, formal[i].name});
      const u32 n = std::min(size, formal_at.nbytes);
      if (into) out.push_back({off, formal_at.offset, n});
      else out.push_back({formal_at.offset, off, n});
    }
    return out;
  };
  auto push_pairs = [&](const std::vector<CopyParam>& list) {
    const u32 at = x.push(static_cast<u32>(list.size()));
    for (auto& c : list) x.push(c.from), x.push(c.to), x.push(c.nbytes);
    return at;
  };
  const std::vector<CopyParam> in = pairs(*arguments, callee->params, true), out = pairs(*results, callee->results, false);
  // Can the callee reach this function again?
  std::set<const Function*> seen{callee};
  std::vector<const Function*> todo{callee};
  while (!todo.empty()) {
    const Function* f = todo.back();
    todo.pop_back();
    for (auto* g : b.calls_[f])
      if (seen.insert(g).second) todo.push_back(g);
  }
  const bool recursive = seen.count(&x.function()) > 0;
  u32 frame_ext = 0;
  if (recursive) {
    auto& f = b.frames_.at(&x.function());
    frame_ext = x.push(f.register_begin);
    for (u32 v : {f.register_end, f.predicate_begin, f.predicate_end, f.local_begin, f.local_end}) x.push(v);
    push_pairs(out);
    const u32 widths_at = x.push(0);
    b.p_->ext[widths_at] = x.here();
    std::map<u32, u32> width_at;
    auto& slots = b.slots_.at(&x.function());
    for (size_t r = 0; r < slots.size(); r++)
      if (slots[r] != ~0u && x.function().registers[r].width != 1) width_at[slots[r]] = x.function().registers[r].width == 64 ? 64 : 32;
    for (u32 s = f.register_begin; s < f.register_end; s += 128) x.push(width_at.count(s) ? width_at[s] : 32);
  }
  auto extra = [&](Fn fn, u32 ext) {
    Ins i;
    i.guard = x.ins.guard, i.guarded = x.ins.guarded;
    i.full = i.part = fn;
    i.ext = ext;
    Source s = x.source;
    b.emit(x.function(), i, s);
  };
  if (recursive) extra(save_frame, frame_ext);
  if (!in.empty()) extra(copy_params, push_pairs(in));
  Ins jump = x.ins;
  jump.flow = Flow::CALL;
  jump.full = jump.part = nothing;
  b.fixups_.push_back({static_cast<u32>(b.p_->code.size()), callee, -1});
  b.emit(x.function(), jump, x.source);
  x.set(nothing);
  if (recursive) {
    x.ins.ext = frame_ext;
    x.set(restore_frame);
  } else if (!out.empty()) {
    x.ins.ext = push_pairs(out);
    x.set(copy_params);
  }
}

const Row ROWS[] = {
    {"bra ?uni", Class::CONTROL, 0, bra},
    {"brx .idx ?uni", Class::CONTROL, 0, brx},
    {"call ?uni", Class::CONTROL, 0, call, "direct calls, recursion included; indirect calls are not supported; printf prints nothing"},
    {"ret ?uni", Class::CONTROL, 0, ret},
    {"exit", Class::CONTROL, 0, exit_},
    {"trap", Class::CONTROL, 0, trap},
    {"brkpt", Class::CONTROL, 0, trap},
    {"pmevent ?mask", Class::SPECIAL, 0, nop},
};
}  // namespace

extern const std::span<const Row> control_rows;
const std::span<const Row> control_rows{ROWS};

std::unique_ptr<Program> lower_entry(const Module& module, const Function& entry) { return Builder(module, entry).build(); }

}  // namespace ptx

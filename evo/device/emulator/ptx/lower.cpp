// Lowering of one entry point and the functions it can reach: match rows, lay out memory, emit.
#include <algorithm>

#include "builder.hpp"

namespace ptx {

const char* class_name(Class c) {
  static const char* const names[] = {
      "int",          "fp32",       "fp16",        "fp64",        "mufu",         "convert",
      "move",         "predicate",  "control",     "load_global", "store_global", "load_shared",
      "store_shared", "load_local", "store_local", "load_const",  "atomic",       "async_copy",
      "matrix_move",  "tensor",     "warp",        "barrier",     "special"};
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

void symbols_of(const Operand& o, std::set<std::string>& out) {
  if (o.kind == Operand::SYMBOL) out.insert(o.symbol);
  for (auto& p : o.parts) symbols_of(p, out);
}

bool is_param_variable(const Function& f, const std::string& name) {
  for (auto* list : {&f.params, &f.results, &f.locals})
    for (auto& v : *list)
      if (v.name == name) return v.space == Space::PARAM;
  return false;
}

}  // namespace

// ---- Builder
std::unique_ptr<Program> Builder::build() {
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

// The value of a symbol: the address of a variable, or a special register.
u32 Builder::symbol(const Function& f, const Operand& o, u32 width) {
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
  if (auto it = shared_.find(n); it != shared_.end())
    return fill(Fill::SHARED_ADDRESS, width, it->second + off, 0);
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

void Builder::parameters(const Function& entry) {
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

// Callees come first. So lanes in a callee have the lower pc, and run before the lanes that wait for them.
std::vector<const Function*> Builder::reach(const Function& entry) {
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
        if (it != module_.function_index.end() && module_.functions[it->second].defined)
          calls.insert(&module_.functions[it->second]);
      }
      if (s.words[0] == "call" && !s.operands.empty()) {
        const Operand& target =
            s.operands[s.operands[0].kind == Operand::LIST && s.operands.size() > 1 ? 1 : 0];
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

void Builder::match() {
  for (auto* f : functions_) {
    auto& rows = rows_[f];
    for (auto& s : f->body) {
      const Row* row = find_row(s);
      if (!row) throw Unsupported(place_of(module_, s) + ": unsupported instruction `" + s.op + "`");
      rows.push_back(row);
      if (s.words[0] == "wgmma" ||
          (s.words[0] == "cp" && s.words.size() > 2 && (s.words[2] == "bulk" || s.words[1] == "reduce")))
        p_->async_proxy = true;
      p_->bulk_stores |= s.op.find("bulk_group") != std::string::npos;
      p_->mbarriers |= s.op.find("mbarrier") != std::string::npos;
    }
  }
}

void Builder::shared_layout() {
  std::set<std::string> used;
  for (auto* f : functions_) {
    for (auto& s : f->body)
      for (auto& o : s.operands) symbols_of(o, used);
    u32 local = local_bytes_;
    auto place = [&](const Variable& v) {
      if (v.nbytes > 16u << 20) throw Unsupported("local variable `" + v.name + "` is too large");
      // Each call has a scope with a `param0` of its own: the largest of a name serves them all.
      if (auto it = locals_.find({f, v.name}); it != locals_.end() && it->second.nbytes >= v.nbytes) return;
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
  // Initialisers cannot name shared memory, so the names in the code are all there are.
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

void Builder::place_shared(const Variable& v) {
  if (v.nbytes > MAX_SHARED) throw Unsupported("shared variable `" + v.name + "` is too large");
  p_->static_smem = up(p_->static_smem, std::max(1u, v.align));
  shared_[v.name] = p_->static_smem;
  p_->static_smem += static_cast<u32>(v.nbytes);
  if (p_->static_smem > MAX_SHARED) throw Unsupported("too much shared memory");
}

void Builder::emit_all() {
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
  for (auto& x : fixups_)
    p_->code[x.pc].imm = static_cast<i32>(
        x.statement < 0 ? start_.at(x.function) : pc_of_.at(x.function).at(static_cast<size_t>(x.statement)));
  for (auto& x : ext_fixups_) p_->ext[x.ext] = pc_of_.at(x.function).at(static_cast<size_t>(x.statement));
  for (auto& [fill, f] : code_fills_) {
    auto it = start_.find(f);
    if (it == start_.end()) throw Unsupported("address of function `" + f->name + "` which is not defined");
    p_->fills[fill].value = it->second;
  }
  p_->start = start_.at(p_->entry);
  p_->track.resize(p_->code.size(), 0);
}

void Builder::guard(const Function& f, const Statement& s, Ins& ins) {
  if (s.guard < 0) return;
  ins.guard = slots_.at(&f).at(static_cast<size_t>(s.guard));
  ins.guarded = s.guard_negated ? 2 : 1;
}

void Builder::emit(const Function& f, Ins ins, Source source) {
  ins.source = static_cast<u32>(p_->sources.size());
  p_->sources.push_back(source);
  track(f, *source.statement, ins);
  p_->code.push_back(ins);
}

// ---- Lower
bool Lower::has(std::string_view w) const {
  return std::find(s.words.begin() + 1, s.words.end(), w) != s.words.end();
}
const Operand& Lower::operand(size_t i) const { return s.operands.at(i); }
Program& Lower::program() { return *builder_.p_; }
u32 Lower::here() const { return static_cast<u32>(builder_.p_->ext.size()); }
u32 Lower::push(u32 v) {
  builder_.p_->ext.push_back(v);
  return here() - 1;
}
u32 Lower::constant(u32 width, u64 value) { return builder_.constant(width, value); }
u32 Lower::width(const Operand& o) const {
  return o.kind == Operand::REG ? function_.registers[static_cast<size_t>(o.reg)].width : 0;
}

u32 Lower::to(const Operand& o, std::string_view type) {
  if (o.kind == Operand::SINK) return builder_.scratch();
  if (o.kind != Operand::REG) unsupported("the destination is not a register");
  const u32 want = width_of(type), have = width(o);
  if (have == 1 || (want == 64) != (have == 64))
    unsupported("register `" + function_.registers[static_cast<size_t>(o.reg)].name +
                "` has the wrong width for ." + std::string(type));
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
  if (o.kind != Operand::IMM || o.is_float)
    unsupported("operand " + std::to_string(i) + " must be an integer constant");
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
bool Lower::result_unread() const {
  return s.operands[0].kind == Operand::SINK || builder_.unread_.contains(&s);
}
bool Lower::swap_read() const { return builder_.swap_reads_.contains(&s); }

std::unique_ptr<Program> lower_entry(const Module& module, const Function& entry) {
  return Builder(module, entry).build();
}

}  // namespace ptx

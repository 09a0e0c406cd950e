// Of a function: its head, its scopes, registers, labels and statements.
#include <cstring>

#include "parser.hpp"

namespace ptx {
namespace {

std::string one_line(std::string_view raw) {
  std::string s;
  bool gap = false;
  for (char c : raw.substr(0, 400)) {
    if (c == '\n' || c == '\t' || c == ' ' || c == '\r') {
      gap = !s.empty();
      continue;
    }
    if (gap) s += ' ';
    gap = false;
    s += c;
  }
  return raw.size() > 400 ? s + " ..." : s;
}

}  // namespace

// ---- the head
void Parser::parameters(std::vector<Variable>& out) {
  expect("(");
  if (accept(")")) return;
  do {
    if (is(".reg")) fail("register parameters are not supported");
    variable(out, declaration(false));
  } while (accept(","));
  expect(")");
}

void Parser::function(bool entry) {
  Function f;
  f.entry = entry;
  f.line = peek().line;
  if (!entry && is("(")) parameters(f.results);
  f.name = word();
  if (is("(")) parameters(f.params);
  while (!is("{") && !is(";")) function_directive(f);
  if (!accept(";")) body(f);
  auto [it, fresh] = module_.function_index.try_emplace(f.name, static_cast<u32>(module_.functions.size()));
  if (fresh) module_.functions.push_back(std::move(f));
  else if (!module_.functions[it->second].defined) module_.functions[it->second] = std::move(f);
  else if (f.defined) fail("function `" + f.name + "` defined twice");
}

void Parser::function_directive(Function& f) {
  if (accept(".maxntid")) {
    f.max_threads = threads(nullptr);
  } else if (accept(".reqntid")) {
    threads(f.required_threads);
  } else if (accept(".reqnctapercluster")) {
    threads(f.required_cluster);
  } else if (accept(".minnctapersm")) {
    f.min_ctas = integer32();
  } else if (accept(".maxnreg")) {
    f.max_registers = integer32();
  } else if (accept(".maxclusterrank") || accept(".maxnctapersm")) {
    integer();
  } else if (is(".pragma")) {
    location();
  } else if (!accept(".noreturn") && !accept(".explicitcluster") && !accept(".blocksareclusters")) {
    fail("unknown function directive");
  }
}

u32 Parser::threads(u32* out) {
  u32 v[3] = {1, 1, 1};
  int n = 0;
  do {
    if (n == 3) fail("more than three dimensions");
    v[n++] = integer32(1 << 20);
  } while (accept(","));
  if (out) std::memcpy(out, v, sizeof v);
  const u64 product = u64(v[0]) * v[1] * v[2];
  return product > 1 << 20 ? 1 << 20 : static_cast<u32>(product);
}

// ---- the body
void Parser::place(Statement& s) const {
  s.source_file = outer_[0], s.source_line = outer_[1];
  s.inner_file = inner_[0], s.inner_line = inner_[1];
}

void Parser::open_scope(Function& f) {
  if (scopes_.size() > MAX_DEPTH) fail("blocks nested too deeply");
  f.scope_parent.push_back(scopes_.empty() ? NO_SCOPE : scopes_.back());
  scopes_.push_back(static_cast<u32>(f.scope_parent.size() - 1));
  names_.emplace_back();
}

void Parser::body(Function& f) {
  f.defined = true;
  scopes_.clear(), names_.clear();
  inner_ = outer_ = {};
  inlined_at_.clear();
  expect("{");
  open_scope(f);
  while (!scopes_.empty()) {
    const Token& t = peek();
    if (t.kind == Token::END) fail("function without end");
    if (accept("{")) {
      open_scope(f);
    } else if (accept("}")) {
      scopes_.pop_back(), names_.pop_back();
    } else if (accept(";")) {
    } else if (is(".loc") || is(".file") || is(".pragma")) {
      location();
    } else if (is(".reg")) {
      registers(f);
    } else if (is(".local") || is(".param") || is(".shared") || is(".const") || is(".global")) {
      if (is(".const") || is(".global")) fail("unsupported declaration in a function");
      variables(f.locals, false);
    } else if (accept(".section")) {
      skip_section();
    } else if (t.kind == Token::WORD && peek(1).text == ":" && peek(2).text != ":") {
      label(f);
    } else {
      statement(f);
    }
  }
  Statement end;  // falling off the end returns
  end.op = "ret";
  end.words = {"ret"};
  end.line = peek(0).line;
  end.text = "ret;";
  place(end);
  f.body.push_back(end);
}

void Parser::registers(Function& f) {
  expect(".reg");
  const TypeSize* type = find_type(peek().text);
  if (!type) fail("unsupported register type");
  next();
  do {
    const std::string name = word();
    if (accept("<")) {
      const u32 n = integer32(MAX_REGISTERS);
      expect(">");
      if (f.registers.size() + n > MAX_REGISTERS) fail("too many registers");
      for (u32 i = 0; i < n; i++) declare(f, name + std::to_string(i), type->width);
    } else {
      declare(f, name, type->width);
    }
  } while (accept(","));
  expect(";");
}

void Parser::declare(Function& f, const std::string& name, u8 width) {
  if (f.registers.size() >= MAX_REGISTERS) fail("too many registers");
  names_.back()[name] = static_cast<i32>(f.registers.size());
  f.registers.push_back({name, width});
}

void Parser::label(Function& f) {
  const std::string name = word();
  expect(":");
  if (accept(".branchtargets")) {
    auto& list = f.branch_targets[{scopes_.back(), name}];
    do list.push_back(word());
    while (accept(","));
    expect(";");
    return;
  }
  if (is(".callprototype") || is(".calltargets")) {
    while (!accept(";"))
      if (next().kind == Token::END) fail("prototype without end");
    return;
  }
  if (!f.labels.emplace(std::pair{scopes_.back(), name}, static_cast<u32>(f.body.size())).second)
    fail("label `" + name + "` defined twice");
}

void Parser::statement(Function& f) {
  if (f.body.size() >= MAX_STATEMENTS) fail("too many instructions");
  Statement s;
  const char* begin = peek().text.data();
  s.line = peek().line;
  s.scope = scopes_.back();
  place(s);
  if (accept("@")) {
    s.guard_negated = accept("!");
    Operand g;
    named(g, word());
    if (g.kind != Operand::REG || f.registers[static_cast<size_t>(g.reg)].width != 1)
      fail("the guard is not a predicate register");
    s.guard = g.reg;
  }
  if (peek().kind != Token::WORD) fail("expected an instruction");
  opcode(s);
  if (!is(";")) {
    do s.operands.push_back(operand(0));
    while (accept(","));
  }
  const char* end = peek().text.data();
  expect(";");
  s.text = one_line(std::string_view(begin, static_cast<size_t>(end - begin)));
  f.body.push_back(std::move(s));
}

void Parser::opcode(Statement& s) {
  s.op = word();
  s.words.push_back(s.op);
  for (;;) {
    const Token& t = peek();
    if (t.kind == Token::WORD && t.glued && t.text[0] == '.') {
      s.words.emplace_back(t.text.substr(1));
      s.op += t.text;
      next();
    } else if (t.text == ":" && t.glued && peek(1).text == ":" &&
               (peek(2).kind == Token::WORD || peek(2).kind == Token::NUMBER)) {
      s.words.back() += "::" + std::string(peek(2).text);
      s.op += "::" + std::string(peek(2).text);
      skip(3);
      if (s.words.back().find('.') != std::string::npos) fail("malformed opcode");
    } else {
      return;
    }
  }
}

i64 Function::find_label(u32 scope, const std::string& label) const {
  for (u32 s = scope; s != NO_SCOPE; s = scope_parent[s])
    if (auto it = labels.find({s, label}); it != labels.end()) return it->second;
  return -1;
}

}  // namespace ptx

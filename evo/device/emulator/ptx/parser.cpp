// Of a module: its directives and its variables.
#include "parser.hpp"

namespace ptx {
namespace {

constexpr TypeSize TYPES[] = {{".pred", 1, 1},  {".b8", 1, 16},    {".u8", 1, 16},     {".s8", 1, 16},
                              {".b16", 2, 16},  {".u16", 2, 16},   {".s16", 2, 16},    {".f16", 2, 16},
                              {".bf16", 2, 16}, {".b32", 4, 32},   {".u32", 4, 32},    {".s32", 4, 32},
                              {".f32", 4, 32},  {".f16x2", 4, 32}, {".bf16x2", 4, 32}, {".b64", 8, 64},
                              {".u64", 8, 64},  {".s64", 8, 64},   {".f64", 8, 64}};

}  // namespace

const TypeSize* find_type(std::string_view word) {
  for (auto& t : TYPES)
    if (word == t.word) return &t;
  return nullptr;
}

Module parse_module(std::string_view text) { return Parser(text).parse(); }

Module Parser::parse() {
  while (peek().kind != Token::END) module_item();
  return std::move(module_);
}

// ---- directives
void Parser::module_item() {
  if (peek().kind != Token::WORD) fail("expected a directive");
  if (accept(".version")) {
    module_.version = std::string(next().text);
  } else if (accept(".target")) {
    module_.target = word();
    while (accept(",")) word();
  } else if (accept(".address_size")) {
    if (integer() != 64) fail("only 64-bit addresses are supported");
  } else if (is(".file") || is(".loc") || is(".pragma")) {
    location();
  } else if (accept(".section")) {
    skip_section();
  } else if (accept(".alias")) {
    alias();
  } else {
    definition();
  }
}

void Parser::alias() {
  const std::string name = word();
  expect(",");
  const std::string target = word();
  expect(";");
  auto it = module_.function_index.find(target);
  if (it == module_.function_index.end()) fail("alias of an unknown function");
  module_.function_index[name] = it->second;
}

void Parser::definition() {
  bool external = false;
  while (is(".visible") || is(".extern") || is(".weak") || is(".common"))
    external |= next().text == ".extern";
  if (accept(".entry")) return function(true);
  if (accept(".func")) return function(false);
  if (!is(".global") && !is(".const") && !is(".shared")) fail("unknown directive");
  std::vector<Variable> vars;
  variables(vars, external);
  for (auto& v : vars) {
    auto [it, fresh] = module_.variable_index.try_emplace(v.name, static_cast<u32>(module_.variables.size()));
    if (fresh) module_.variables.push_back(std::move(v));
    else if (!v.external) module_.variables[it->second] = std::move(v);
  }
}

void Parser::location() {
  if (accept(".file")) file();
  else if (accept(".loc")) source_place();
  else pragma();
}

void Parser::file() {
  const u32 id = integer32();
  if (peek().kind != Token::STRING) fail("expected a file name");
  const std::string_view s = next().text;
  module_.files[id] = std::string(s.substr(1, s.size() - 2));
  while (accept(",")) integer();
}

void Parser::source_place() {
  const Place here = place_here();
  Place caller{};
  while (accept(",")) {
    if (accept("function_name")) {
      word();
      if (accept("+")) integer();
    } else if (accept("inlined_at")) {
      caller = place_here();
    } else {
      fail("unknown .loc attribute");
    }
  }
  inlined_at_[here] = caller;
  // A person looks for the line of the kernel itself. The line of the innermost inlined function is told
  // beside it.
  inner_ = outer_ = here;
  for (int depth = 0; depth < 16; depth++) {
    auto it = inlined_at_.find(outer_);
    if (it == inlined_at_.end() || it->second[0] == 0) break;
    outer_ = it->second;
  }
}

void Parser::pragma() {
  expect(".pragma");
  do {
    if (peek().kind != Token::STRING) fail("expected a string");
    next();
  } while (accept(","));
  expect(";");
}

Parser::Place Parser::place_here() {
  const u32 file = integer32(), line = integer32();
  return {file, line, integer32()};
}

void Parser::skip_section() {
  next();
  expect("{");
  for (int depth = 1; depth > 0;) {
    const Token& t = next();
    if (t.kind == Token::END) fail("section without end");
    if (t.text == "{") depth++;
    if (t.text == "}") depth--;
  }
}

// ---- variables
Space Parser::variable_space() {
  const std::string s = word();
  if (s == ".global") return Space::GLOBAL;
  if (s == ".const") return Space::CONST;
  if (s == ".shared") return Space::SHARED;
  if (s == ".local") return Space::LOCAL;
  if (s == ".param") return Space::PARAM;
  fail("expected a state space");
}

// What stands before the name: `.space .align n .type`.
Parser::Declaration Parser::declaration(bool external) {
  Declaration d;
  d.proto.space = variable_space();
  d.proto.external = external;
  d.proto.scope = scopes_.empty() ? 0 : scopes_.back();
  while (peek().kind == Token::WORD && peek().text[0] == '.') {
    if (accept(".align")) {
      d.align = integer32(1 << 16);
      if (!d.align || (d.align & (d.align - 1))) fail("alignment must be a power of two");
    } else if (accept(".attribute")) {
      expect("(");
      while (!is(")")) {
        if (next().kind == Token::END) fail("attribute without end");
      }
      expect(")");
    } else if (accept(".v2")) {
      d.lanes = 2;
    } else if (accept(".v4")) {
      d.lanes = 4;
    } else if (accept(".ptr")) {
      while (is(".global") || is(".shared") || is(".const") || is(".local")) next();
      if (accept(".align")) integer();
    } else if ((d.type = find_type(peek().text))) {
      next();
    } else {
      fail("unknown attribute of a variable");
    }
  }
  if (!d.type) fail("expected a type");
  return d;
}

// `name[dims] = init`: one variable.
void Parser::variable(std::vector<Variable>& out, const Declaration& d) {
  Variable v = d.proto;
  v.name = word();
  v.align = std::max(d.align, u32(d.type->bytes) * d.lanes);
  if (d.align) v.align = d.align;
  u64 count = d.lanes;
  while (accept("[")) {
    if (accept("]")) {
      v.unsized = true;
      continue;
    }
    const u64 dim = integer();
    if (dim > MAX_VARIABLE || (count *= dim) > MAX_VARIABLE) fail("variable too large");
    expect("]");
  }
  v.nbytes = v.unsized ? 0 : count * d.type->bytes;
  if (accept("=")) {
    initialiser(v, *d.type, 0);
    if (v.unsized) v.nbytes = v.init.size(), v.unsized = false;
    if (v.init.size() > v.nbytes) fail("initialiser longer than the variable");
  }
  out.push_back(std::move(v));
}

void Parser::variables(std::vector<Variable>& out, bool external) {
  const Declaration d = declaration(external);
  do variable(out, d);
  while (accept(","));
  expect(";");
}

void Parser::initialiser(Variable& v, const TypeSize& type, int depth) {
  if (depth > MAX_DEPTH) fail("initialiser nested too deeply");
  if (accept("{")) {
    while (!accept("}")) {
      initialiser(v, type, depth + 1);
      if (!accept(",") && !is("}")) fail("expected `,` or `}`");
    }
    return;
  }
  if (v.init.size() > MAX_VARIABLE) fail("initialiser too long");
  u64 value = 0;
  if (peek().kind == Token::WORD) {
    Variable::Address a{v.init.size(), "", 0};
    a.symbol = word();
    if (a.symbol == "generic") {
      expect("(");
      a.symbol = word();
      expect(")");
    } else if (is("(")) {
      fail("unsupported initialiser");
    }
    if (accept("+")) a.offset = static_cast<i64>(integer());
    v.addresses.push_back(a);
  } else {
    const bool minus = accept("-");
    if (peek().kind != Token::NUMBER) fail("expected a value");
    Operand o;
    number(o);
    value = o.imm;
    if (o.is_float && !o.single && type.bytes == 4)
      value = bits<u32>(static_cast<float>(bits<double>(value)));
    if (minus) value = o.is_float ? value ^ (u64(1) << (type.bytes * 8 - 1)) : 0 - value;
  }
  v.init.append(reinterpret_cast<const char*>(&value), type.bytes);
}

}  // namespace ptx

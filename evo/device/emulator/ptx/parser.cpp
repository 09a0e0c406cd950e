// Recursive descent over the tokens. Operands nest (vectors in memory operands), so depth is limited.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "syntax.hpp"

namespace ptx {
namespace {

constexpr u64 MAX_VARIABLE = u64(1) << 30;  // bytes of one module-scope variable
constexpr size_t MAX_REGISTERS = 1 << 20;   // of one function
constexpr size_t MAX_STATEMENTS = 1 << 21;
constexpr int MAX_DEPTH = 64;
constexpr u32 NO_SCOPE = ~0u;

struct TypeSize {
  const char* word;
  u8 bytes, width;
};
constexpr TypeSize TYPES[] = {{".pred", 1, 1},  {".b8", 1, 16},    {".u8", 1, 16},     {".s8", 1, 16},
                              {".b16", 2, 16},  {".u16", 2, 16},   {".s16", 2, 16},    {".f16", 2, 16},
                              {".bf16", 2, 16}, {".b32", 4, 32},   {".u32", 4, 32},    {".s32", 4, 32},
                              {".f32", 4, 32},  {".f16x2", 4, 32}, {".bf16x2", 4, 32}, {".b64", 8, 64},
                              {".u64", 8, 64},  {".s64", 8, 64},   {".f64", 8, 64}};

const TypeSize* type_of(std::string_view w) {
  for (auto& t : TYPES)
    if (w == t.word) return &t;
  return nullptr;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokenize(text)), text_(text) {}

  Module parse() {
    while (peek().kind != Token::END) module_item();
    return std::move(module_);
  }

 private:
  std::vector<Token> tokens_;
  std::string_view text_;
  size_t at_ = 0;
  Module module_;
  using Place = std::array<u32, 3>;  // file, line, column; zeros: unknown
  Place inner_{}, outer_{};
  std::map<Place, Place> inlined_at_;
  // of the function being parsed
  std::vector<std::unordered_map<std::string, i32>> names_;
  std::vector<u32> scopes_;

  const Token& peek(size_t k = 0) const { return tokens_[std::min(at_ + k, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& t = peek();
    if (t.kind != Token::END) at_++;
    return t;
  }
  bool is(std::string_view s) const { return peek().kind != Token::END && peek().text == s; }
  bool accept(std::string_view s) {
    if (!is(s)) return false;
    at_++;
    return true;
  }
  [[noreturn]] void fail(const std::string& what) const {
    const Token& t = peek();
    throw SyntaxError(t.line,
                      what + (t.kind == Token::END ? " at the end of the text"
                                                   : ", found `" + std::string(t.text.substr(0, 40)) + "`"));
  }
  void expect(std::string_view s) {
    if (!accept(s)) fail("expected `" + std::string(s) + "`");
  }
  std::string word() {
    if (peek().kind != Token::WORD) fail("expected a name");
    return std::string(next().text);
  }

  u64 integer() {
    const bool minus = accept("-");
    if (peek().kind != Token::NUMBER) fail("expected a number");
    Operand o;
    number(o);
    if (o.is_float) fail("expected an integer");
    return minus ? 0 - o.imm : o.imm;
  }
  u32 integer32(u32 limit = ~0u) {
    const u64 v = integer();
    if (v > limit) fail("number out of range");
    return static_cast<u32>(v);
  }

  void number(Operand& o) {
    std::string s(next().text);
    o.kind = Operand::IMM;
    const char mark = s.size() > 2 && s[0] == '0' ? s[1] : 0;
    char* end = nullptr;
    if (mark == 'f' || mark == 'F') {
      if (s.size() != 10) fail("a 0f number has 8 hex digits");
      o.is_float = o.single = true;
      o.imm = std::strtoull(s.c_str() + 2, &end, 16);
    } else if (mark == 'd' || mark == 'D') {
      if (s.size() != 18) fail("a 0d number has 16 hex digits");
      o.is_float = true;
      o.imm = std::strtoull(s.c_str() + 2, &end, 16);
    } else if (mark != 'x' && mark != 'X' && s.find_first_of(".eE") != std::string::npos) {
      o.is_float = true;
      o.imm = bits<u64>(std::strtod(s.c_str(), &end));
    } else {
      if (s.back() == 'U') s.pop_back();
      const bool binary = mark == 'b' || mark == 'B';
      o.imm = binary ? std::strtoull(s.c_str() + 2, &end, 2) : std::strtoull(s.c_str(), &end, 0);
    }
    if (!end || *end) fail("malformed number `" + s + "`");
  }

  // ---- module level
  void module_item() {
    const Token& t = peek();
    if (t.kind != Token::WORD) fail("expected a directive");
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
      const std::string alias = word();
      expect(",");
      const std::string target = word();
      expect(";");
      auto it = module_.function_index.find(target);
      if (it == module_.function_index.end()) fail("alias of an unknown function");
      module_.function_index[alias] = it->second;
    } else {
      bool external = false;
      while (is(".visible") || is(".extern") || is(".weak") || is(".common"))
        external |= next().text == ".extern";
      if (accept(".entry")) function(true);
      else if (accept(".func")) function(false);
      else if (is(".global") || is(".const") || is(".shared")) {
        std::vector<Variable> vars;
        variables(vars, external);
        for (auto& v : vars) {
          auto [it, fresh] =
              module_.variable_index.try_emplace(v.name, static_cast<u32>(module_.variables.size()));
          if (fresh) module_.variables.push_back(std::move(v));
          else if (!v.external) module_.variables[it->second] = std::move(v);
        }
      } else {
        fail("unknown directive");
      }
    }
  }

  void location() {
    if (accept(".file")) {
      const u32 id = integer32();
      if (peek().kind != Token::STRING) fail("expected a file name");
      const std::string_view s = next().text;
      module_.files[id] = std::string(s.substr(1, s.size() - 2));
      while (accept(",")) integer();
    } else if (accept(".loc")) {
      const Place place = place_here();
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
      inlined_at_[place] = caller;
      // A person looks for the line of the kernel itself; the line of the innermost helper is told beside it.
      inner_ = outer_ = place;
      for (int depth = 0; depth < 16; depth++) {
        auto it = inlined_at_.find(outer_);
        if (it == inlined_at_.end() || it->second[0] == 0) break;
        outer_ = it->second;
      }
    } else {
      expect(".pragma");
      do {
        if (peek().kind != Token::STRING) fail("expected a string");
        next();
      } while (accept(","));
      expect(";");
    }
  }

  Place place_here() {
    const u32 file = integer32(), line = integer32();
    return {file, line, integer32()};
  }

  void skip_section() {
    next();
    expect("{");
    for (int depth = 1; depth > 0;) {
      const Token& t = next();
      if (t.kind == Token::END) fail("section without end");
      if (t.text == "{") depth++;
      if (t.text == "}") depth--;
    }
  }

  Space variable_space() {
    const std::string s = word();
    if (s == ".global") return Space::GLOBAL;
    if (s == ".const") return Space::CONST;
    if (s == ".shared") return Space::SHARED;
    if (s == ".local") return Space::LOCAL;
    if (s == ".param") return Space::PARAM;
    fail("expected a state space");
  }

  // `.space .align n .type name[dims] = init, ...`, without the final `;` (parameters have none).
  void variable(std::vector<Variable>& out, bool external, bool several) {
    Variable proto;
    proto.space = variable_space();
    proto.external = external;
    proto.scope = scopes_.empty() ? 0 : scopes_.back();
    u32 align = 0, lanes = 1;
    const TypeSize* type = nullptr;
    while (peek().kind == Token::WORD && peek().text[0] == '.') {
      if (accept(".align")) {
        align = integer32(1 << 16);
        if (!align || (align & (align - 1))) fail("alignment must be a power of two");
      } else if (accept(".attribute")) {
        expect("(");
        while (!is(")")) {
          if (next().kind == Token::END) fail("attribute without end");
        }
        expect(")");
      } else if (accept(".v2")) {
        lanes = 2;
      } else if (accept(".v4")) {
        lanes = 4;
      } else if (accept(".ptr")) {
        while (is(".global") || is(".shared") || is(".const") || is(".local")) next();
        if (accept(".align")) integer();
      } else if ((type = type_of(peek().text))) {
        next();
      } else {
        fail("unknown attribute of a variable");
      }
    }
    if (!type) fail("expected a type");
    do {
      Variable v = proto;
      v.name = word();
      v.align = std::max(align, u32(type->bytes) * lanes);
      if (align) v.align = align;
      u64 count = lanes;
      while (accept("[")) {
        if (accept("]")) {
          v.unsized = true;
          continue;
        }
        const u64 dim = integer();
        if (dim > MAX_VARIABLE || (count *= dim) > MAX_VARIABLE) fail("variable too large");
        expect("]");
      }
      v.nbytes = v.unsized ? 0 : count * type->bytes;
      if (accept("=")) {
        initialiser(v, *type, 0);
        if (v.unsized) v.nbytes = v.init.size(), v.unsized = false;
        if (v.init.size() > v.nbytes) fail("initialiser longer than the variable");
      }
      out.push_back(std::move(v));
    } while (several && accept(","));
  }
  void variables(std::vector<Variable>& out, bool external) {
    variable(out, external, true);
    expect(";");
  }

  void initialiser(Variable& v, const TypeSize& type, int depth) {
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
      Variable::Address a{v.init.size(), "", 0, false};
      a.symbol = word();
      if (a.symbol == "generic") {
        expect("(");
        a.symbol = word();
        a.generic = true;
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

  // ---- functions
  void parameters(std::vector<Variable>& out) {
    expect("(");
    if (accept(")")) return;
    do {
      if (is(".reg")) fail("register parameters are not supported");
      variable(out, false, false);
    } while (accept(","));
    expect(")");
  }

  void function(bool entry) {
    Function f;
    f.entry = entry;
    f.line = peek().line;
    if (!entry && is("(")) parameters(f.results);
    f.name = word();
    if (is("(")) parameters(f.params);
    while (!is("{") && !is(";")) {
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
    if (!accept(";")) body(f);
    auto [it, fresh] = module_.function_index.try_emplace(f.name, static_cast<u32>(module_.functions.size()));
    if (fresh) module_.functions.push_back(std::move(f));
    else if (!module_.functions[it->second].defined) module_.functions[it->second] = std::move(f);
    else if (f.defined) fail("function `" + f.name + "` defined twice");
  }

  u32 threads(u32* out) {
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

  void place(Statement& s) const {
    s.source_file = outer_[0], s.source_line = outer_[1];
    s.inner_file = inner_[0], s.inner_line = inner_[1];
  }

  void open_scope(Function& f) {
    if (scopes_.size() > MAX_DEPTH) fail("blocks nested too deeply");
    f.scope_parent.push_back(scopes_.empty() ? NO_SCOPE : scopes_.back());
    scopes_.push_back(static_cast<u32>(f.scope_parent.size() - 1));
    names_.emplace_back();
  }

  void body(Function& f) {
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

  void registers(Function& f) {
    expect(".reg");
    const TypeSize* type = type_of(peek().text);
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
  void declare(Function& f, const std::string& name, u8 width) {
    if (f.registers.size() >= MAX_REGISTERS) fail("too many registers");
    names_.back()[name] = static_cast<i32>(f.registers.size());
    f.registers.push_back({name, width});
  }

  void label(Function& f) {
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

  void statement(Function& f) {
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

  static std::string one_line(std::string_view raw) {
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

  void opcode(Statement& s) {
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
        at_ += 3;
        if (s.words.back().find('.') != std::string::npos) fail("malformed opcode");
      } else {
        return;
      }
    }
  }

  void named(Operand& o, std::string name) {
    for (size_t i = names_.size(); i-- > 0;) {
      auto it = names_[i].find(name);
      if (it != names_[i].end()) {
        o.kind = Operand::REG;
        o.reg = it->second;
        return;
      }
    }
    if (name[0] == '%' && peek().kind == Token::WORD && peek().glued && peek().text.size() == 2 &&
        peek().text[0] == '.')
      name += next().text;
    o.kind = Operand::SYMBOL;
    o.symbol = std::move(name);
  }

  Operand operand(int depth) {
    if (depth > MAX_DEPTH) fail("operand nested too deeply");
    Operand o = single(depth);
    if (is("|")) {
      Operand pair;
      pair.kind = Operand::PAIR;
      pair.parts.push_back(std::move(o));
      while (accept("|")) pair.parts.push_back(single(depth + 1));
      return pair;
    }
    return o;
  }

  Operand single(int depth) {
    Operand o;
    if (accept("{")) return list(Operand::VECTOR, "}", depth);
    if (accept("(")) return list(Operand::LIST, ")", depth);
    if (accept("[")) {
      o.kind = Operand::MEMORY;
      o.parts.push_back(operand(depth + 1));
      Operand& base = o.parts.front();
      if (base.kind == Operand::SYMBOL) o.imm = base.imm, base.imm = 0;
      else if (is("+") || is("-")) o.imm = offset();
      while (accept(",")) o.parts.push_back(operand(depth + 1));
      expect("]");
      return o;
    }
    if (accept("!")) {
      o = operand(depth + 1);
      o.negated = !o.negated;
      return o;
    }
    if (is("-") || peek().kind == Token::NUMBER) {
      const bool minus = accept("-");
      if (peek().kind != Token::NUMBER) fail("expected a number");
      number(o);
      if (minus) o.imm = o.single ? o.imm ^ 0x80000000u : o.is_float ? o.imm ^ (u64(1) << 63) : 0 - o.imm;
      return o;
    }
    if (peek().kind == Token::WORD) {
      const std::string name = word();
      if (name == "_") {
        o.kind = Operand::SINK;
        return o;
      }
      named(o, name);
      if (o.kind == Operand::SYMBOL && (is("+") || (is("-") && peek(1).kind == Token::NUMBER)))
        o.imm = offset();
      return o;
    }
    fail("expected an operand");
  }
  u64 offset() {
    const bool minus = next().text == "-";
    const u64 v = integer();
    return minus ? 0 - v : v;
  }
  Operand list(Operand::Kind kind, std::string_view close, int depth) {
    Operand o;
    o.kind = kind;
    if (accept(close)) return o;
    do {
      if (o.parts.size() >= 1024) fail("too many operands");
      o.parts.push_back(operand(depth + 1));
    } while (accept(","));
    expect(close);
    return o;
  }
};

}  // namespace

i64 Function::find_label(u32 scope, const std::string& label) const {
  for (u32 s = scope; s != NO_SCOPE; s = scope_parent[s])
    if (auto it = labels.find({s, label}); it != labels.end()) return it->second;
  return -1;
}

Module parse_module(std::string_view text) { return Parser(text).parse(); }

}  // namespace ptx

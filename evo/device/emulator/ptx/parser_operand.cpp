// Of a statement: its operands.
#include "parser.hpp"

namespace ptx {

void Parser::named(Operand& o, std::string name) {
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

Operand Parser::operand(int depth) {
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

Operand Parser::single(int depth) {
  Operand o;
  if (accept("{")) return list(Operand::VECTOR, "}", depth);
  if (accept("(")) return list(Operand::LIST, ")", depth);
  if (accept("[")) return memory(depth);
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

// [base + offset, more operands]: the bracket is already read.
Operand Parser::memory(int depth) {
  Operand o;
  o.kind = Operand::MEMORY;
  o.parts.push_back(operand(depth + 1));
  Operand& base = o.parts.front();
  if (base.kind == Operand::SYMBOL) o.imm = base.imm, base.imm = 0;
  else if (is("+") || is("-")) o.imm = offset();
  while (accept(",")) o.parts.push_back(operand(depth + 1));
  expect("]");
  return o;
}

u64 Parser::offset() {
  const bool minus = next().text == "-";
  const u64 v = integer();
  return minus ? 0 - v : v;
}

Operand Parser::list(Operand::Kind kind, std::string_view close, int depth) {
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

}  // namespace ptx

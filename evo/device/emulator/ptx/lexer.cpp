// From text to tokens, and from tokens to words and numbers.
#include <cstdlib>

#include "tokens.hpp"

namespace ptx {

const char* space_name(Space s) {
  switch (s) {
    case Space::GLOBAL: return "global";
    case Space::SHARED: return "shared";
    case Space::LOCAL: return "local";
    case Space::CONST: return "const";
    case Space::PARAM: return "param";
    default: return "generic";
  }
}

namespace {
bool word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool digit(char c) { return c >= '0' && c <= '9'; }
bool word_char(char c) { return word_start(c) || digit(c); }
}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 4);
  u32 line = 1;
  bool glued = false;
  size_t i = 0;
  const size_t n = text.size();
  auto emit = [&](Token::Kind kind, size_t end) {
    tokens.push_back({kind, glued, line, text.substr(i, end - i)});
    i = end;
    glued = true;
  };
  while (i < n) {
    const char c = text[i];
    if (c == '\n') {
      line++, i++, glued = false;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\0' || c == '\f' || c == '\v') {
      i++, glued = false;
    } else if (c == '/' && i + 1 < n && text[i + 1] == '/') {
      while (i < n && text[i] != '\n') i++;
      glued = false;
    } else if (c == '/' && i + 1 < n && text[i + 1] == '*') {
      const size_t end = text.find("*/", i + 2);
      if (end == std::string_view::npos) throw SyntaxError(line, "comment without end");
      for (; i < end + 2; i++) line += text[i] == '\n';
      glued = false;
    } else if (word_start(c) || (c == '.' && i + 1 < n && word_start(text[i + 1]))) {
      size_t e = i + 1;
      while (e < n && word_char(text[e])) e++;
      emit(Token::WORD, e);
    } else if (digit(c)) {
      size_t e = i + 1;
      while (e < n && (word_char(text[e]) || (text[e] == '.' && e + 1 < n && digit(text[e + 1])))) {
        const bool exponent = (text[e] == 'e' || text[e] == 'E') && e + 1 < n &&
                              (text[e + 1] == '-' || text[e + 1] == '+') &&
                              !(text[i] == '0' && i + 1 < n && !digit(text[i + 1]) && text[i + 1] != '.');
        e += exponent ? 2 : 1;
      }
      emit(Token::NUMBER, e);
    } else if (c == '"') {
      const size_t e = text.find_first_of("\"\n", i + 1);
      if (e == std::string_view::npos || text[e] == '\n') throw SyntaxError(line, "string without end");
      emit(Token::STRING, e + 1);
    } else if (c == '.' && i + 1 < n && digit(text[i + 1])) {  // modifiers such as `.2d`
      size_t e = i + 1;
      while (e < n && word_char(text[e])) e++;
      emit(Token::WORD, e);
    } else {
      if (static_cast<u8>(c) < 32 || static_cast<u8>(c) > 126)
        throw SyntaxError(line, "unexpected byte " + std::to_string(static_cast<u8>(c)));
      emit(Token::PUNCT, i + 1);
    }
  }
  tokens.push_back({Token::END, false, line, {}});
  return tokens;
}

// ---- the reader
void TokenReader::fail(const std::string& what) const {
  const Token& t = peek();
  const std::string found = ", found `" + std::string(t.text.substr(0, 40)) + "`";
  throw SyntaxError(t.line, what + (t.kind == Token::END ? " at the end of the text" : found));
}

std::string TokenReader::word() {
  if (peek().kind != Token::WORD) fail("expected a name");
  return std::string(next().text);
}

u64 TokenReader::integer() {
  const bool minus = accept("-");
  if (peek().kind != Token::NUMBER) fail("expected a number");
  Operand o;
  number(o);
  if (o.is_float) fail("expected an integer");
  return minus ? 0 - o.imm : o.imm;
}

u32 TokenReader::integer32(u32 limit) {
  const u64 v = integer();
  if (v > limit) fail("number out of range");
  return static_cast<u32>(v);
}

void TokenReader::number(Operand& o) {
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

}  // namespace ptx

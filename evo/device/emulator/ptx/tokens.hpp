// Tokens of a PTX text, and a reader that walks over them.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "syntax.hpp"

namespace ptx {

struct Token {
  enum Kind : u8 { WORD, NUMBER, STRING, PUNCT, END } kind;
  bool glued;  // no white space before it
  u32 line;
  std::string_view text;
};

// The tokens of `text`, with an END token last. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view text);

class TokenReader {
 protected:
  explicit TokenReader(std::string_view text) : tokens_(tokenize(text)) {}

  const Token& peek(size_t k = 0) const { return tokens_[std::min(at_ + k, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& t = peek();
    if (t.kind != Token::END) at_++;
    return t;
  }
  void skip(size_t n) { at_ += n; }
  bool is(std::string_view s) const { return peek().kind != Token::END && peek().text == s; }
  bool accept(std::string_view s) {
    if (!is(s)) return false;
    at_++;
    return true;
  }
  void expect(std::string_view s) {
    if (!accept(s)) fail("expected `" + std::string(s) + "`");
  }
  [[noreturn]] void fail(const std::string& what) const;
  std::string word();
  u64 integer();
  u32 integer32(u32 limit = ~0u);
  // The next token, a number, as the immediate operand `o`.
  void number(Operand& o);

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace ptx

// The parser: recursive descent over the tokens. Operands nest (vectors in memory operands), so depth is
// limited.
#pragma once
#include <array>

#include "tokens.hpp"

namespace ptx {

constexpr u64 MAX_VARIABLE = u64(1) << 30;  // bytes of one module-scope variable
constexpr size_t MAX_REGISTERS = 1 << 20;   // of one function
constexpr size_t MAX_STATEMENTS = 1 << 21;  // of one function
constexpr int MAX_DEPTH = 64;
constexpr u32 NO_SCOPE = ~0u;

struct TypeSize {
  const char* word;
  u8 bytes, width;
};
// The size of a type word such as `.f32`; nullptr if it is none.
const TypeSize* find_type(std::string_view word);

class Parser : TokenReader {
 public:
  explicit Parser(std::string_view text) : TokenReader(text) {}
  Module parse();

 private:
  using Place = std::array<u32, 3>;  // file, line, column; zeros: unknown
  struct Declaration {               // what the variables of one statement share
    Variable proto;
    u32 align = 0, lanes = 1;  // align 0: not given
    const TypeSize* type = nullptr;
  };

  // ---- parser.cpp: the module, variables
  void module_item();
  void alias();
  void definition();
  void file();
  void location();
  void pragma();
  void source_place();
  Place place_here();
  void skip_section();
  Space variable_space();
  Declaration declaration(bool external);
  void variable(std::vector<Variable>& out, const Declaration& d);
  void variables(std::vector<Variable>& out, bool external);
  void initialiser(Variable& v, const TypeSize& type, int depth);

  // ---- parser_function.cpp: functions and statements
  void parameters(std::vector<Variable>& out);
  void function(bool entry);
  void function_directive(Function& f);
  u32 threads(u32* out);
  void place(Statement& s) const;
  void open_scope(Function& f);
  void body(Function& f);
  void registers(Function& f);
  void declare(Function& f, const std::string& name, u8 width);
  void label(Function& f);
  void statement(Function& f);
  void opcode(Statement& s);

  // ---- parser_operand.cpp: operands
  void named(Operand& o, std::string name);
  Operand operand(int depth);
  Operand single(int depth);
  Operand memory(int depth);
  u64 offset();
  Operand list(Operand::Kind kind, std::string_view close, int depth);

  Module module_;
  Place inner_{}, outer_{};
  std::map<Place, Place> inlined_at_;
  // Of the function that is being parsed: the registers of every open scope, and the scopes' numbers.
  std::vector<std::unordered_map<std::string, i32>> names_;
  std::vector<u32> scopes_;
};

}  // namespace ptx

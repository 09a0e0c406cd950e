// A PTX module as its text says it: symbols, functions, statements with resolved registers and labels. What
// the statements mean comes later.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base.hpp"

namespace ptx {

enum class Space : u8 { GENERIC, GLOBAL, SHARED, LOCAL, CONST, PARAM };
const char* space_name(Space s);

struct Operand {
  enum Kind : u8 { NONE, REG, IMM, SYMBOL, MEMORY, VECTOR, PAIR, LIST, SINK } kind = NONE;
  bool negated = false;   // !p
  bool is_float = false;  // immediate written as 0f.., 0d.. or with a decimal point
  bool single = false;    // 0f: the bits of a float
  i32 reg = -1;           // REG: index into Function::registers
  // IMM: the value (floats: the bits of the double, or of the float if `single`); MEMORY, SYMBOL: the offset
  u64 imm = 0;
  std::string symbol;  // SYMBOL; also special registers
  // Of MEMORY: the base, then further operands (coordinates, cache policy). Of VECTOR, PAIR, LIST: all.
  std::vector<Operand> parts;
};

struct Statement {
  std::string op;  // "ld.global.v4.f32"
  std::vector<std::string> words;
  std::vector<Operand> operands;
  i32 guard = -1;
  bool guard_negated = false;
  u32 line = 0, scope = 0;
  u32 source_file = 0, source_line = 0;  // from .loc: the line of the kernel
  u32 inner_file = 0, inner_line = 0;    // the line of the innermost function that is inlined there
  std::string text;
};

struct Variable {  // .global, .const, .shared, .local, .param
  std::string name;
  Space space = Space::GLOBAL;
  u64 nbytes = 0;
  u32 align = 1;
  bool unsized = false;  // extern .shared x[]
  bool external = false;
  u32 scope = 0;
  std::string init;  // leading bytes; the rest is zero
  struct Address {
    u64 at;
    std::string symbol;
    i64 offset;
  };
  std::vector<Address> addresses;  // added to the bytes when symbols have a place
};

struct Register {
  std::string name;
  u8 width;  // 1 (predicate), 16, 32, 64
};

struct Function {
  std::string name;
  bool entry = false, defined = false;
  std::vector<Variable> params, results;
  std::vector<Variable> locals;  // .local, .param and .shared declared in the body
  std::vector<Register> registers;
  std::vector<Statement> body;
  std::vector<u32> scope_parent;  // of each block scope
  std::map<std::pair<u32, std::string>, u32> labels;
  std::map<std::pair<u32, std::string>, std::vector<std::string>> branch_targets;
  u32 max_threads = 0, required_threads[3] = {}, required_cluster[3] = {}, min_ctas = 0, max_registers = 0,
      line = 0;

  // Index of the statement that `label` names, seen from `scope`; -1 if unknown.
  i64 find_label(u32 scope, const std::string& label) const;
};

// Where the variables of a module lie: from its first launch on, for all launches.
struct Placed {
  std::mutex mutex;
  // What %envreg1 and %envreg2 point to in a cooperative launch. Word 1 is the barrier: its highest bit turns
  // over each time that all CTAs have come, the others count them and are zero then.
  alignas(16) u32 grid[4] = {};
  std::vector<std::vector<u8>> memory;
  std::vector<u64> address;  // per Module::variables, 0: none
};

struct Module {
  std::string version, target;
  std::vector<Variable> variables;
  std::shared_ptr<Placed> placed = std::make_shared<Placed>();
  std::vector<Function> functions;
  std::unordered_map<std::string, u32> function_index, variable_index;
  std::unordered_map<u32, std::string> files;
};

// Throws SyntaxError. Sizes, nesting and counts are limited, so that hostile text cannot take memory or time.
Module parse_module(std::string_view text);

}  // namespace ptx

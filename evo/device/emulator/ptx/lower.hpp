// From statements to instructions: the row of the table that a statement matches, and what the factory of
// that row may ask for.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "program.hpp"

namespace ptx {

struct Handlers {
  Fn full = nullptr, part = nullptr;
};

class Lower;

// One row of the instruction table. The first word of the pattern is the opcode. Of `.a|b` one must follow,
// of `?a|b` one may follow. Operand 0 is a destination in rows with defs = 1.
struct Row {
  const char* pattern;
  Class cls;
  int defs;
  void (*make)(Lower&);
  const char* note = "";
};
struct Family {
  const char* name;
  std::span<const Row> rows;
};
std::span<const Family> instruction_table();
// The row that `s` matches; nullptr if none.
const Row* find_row(const Statement& s);

inline u32 width_of(std::string_view type) {  // of a type word such as "f32"; packed halves count as 32
  if (type == "pred") return 1;
  if (type == "f16x2" || type == "bf16x2") return 32;
  const size_t d = type.find_first_of("0123456789");
  if (d == std::string_view::npos) return 0;
  u32 v = 0;
  for (size_t i = d; i < type.size() && type[i] >= '0' && type[i] <= '9'; i++)
    v = v * 10 + static_cast<u32>(type[i] - '0');
  return type.starts_with("bf16") ? 16 : v;
}

class Builder;

// What a factory sees of one statement.
class Lower {
 public:
  Lower(Builder& builder, const Function& function, const Statement& s)
      : s(s), function_(function), builder_(builder) {}
  const Statement& s;
  Ins ins;
  Source source;

  bool has(std::string_view word) const;
  const std::string& word(size_t i) const { return s.words.at(i); }
  const std::string& type() const { return s.words.back(); }
  size_t count() const { return s.operands.size(); }
  const Operand& operand(size_t i) const;
  [[noreturn]] void unsupported(const std::string& why) const { throw Unsupported(why); }

  // Slots. `type` is a type word; the register must have its width (16-bit values use 32-bit slots).
  u32 to(const Operand& o, std::string_view type);
  u32 to(size_t i, std::string_view type) { return to(operand(i), type); }
  u32 from(const Operand& o, std::string_view type);
  u32 from(size_t i, std::string_view type) { return from(operand(i), type); }
  u32 constant(u32 width, u64 value);
  u32 width(const Operand& o) const;                         // of a register; 0 for anything else
  u32 predicate(const Operand& o, bool* negated = nullptr);  // number; constants 0/1 included
  u32 predicate_to(const Operand& o);                        // number to write; a scratch one for `_`
  u64 immediate(size_t i) const;
  u32 tracked(const Operand& o) const;  // number + 1 of a register that wgmma uses; 0 if it is none
  // Address operand [base + offset]: sets ins.a, ins.imm and flag ADDRESS_WIDE (64-bit slot).
  void address(const Operand& o);
  u32 push(u32 value);  // onto Program::ext, returns its index
  void push_all(const Operand& o, std::string_view type, bool destination);
  u32 here() const;  // next index of Program::ext

  // For ld/st of parameters and calls.
  bool local_variable(const std::string& name, u32& offset, u32& nbytes) const;
  const Program::Param* kernel_param(const std::string& name) const;
  u32 param_slot(u32 offset, u32 nbytes, bool is_signed, u32 width);
  i64 label(const std::string& name) const;
  u32 function_index(const std::string& name) const;
  bool result_unread() const;  // of an atomic: nobody reads it
  bool swap_read() const;      // see swap_loops.hpp
  Program& program();
  Builder& builder() { return builder_; }
  const Function& function() const { return function_; }

  void set(Handlers h) { ins.full = h.full, ins.part = h.part; }
  void set(Fn f) { ins.full = ins.part = f; }

 private:
  const Function& function_;
  Builder& builder_;
};

enum InsFlag : u8 { ADDRESS_WIDE = 1 };

}  // namespace ptx

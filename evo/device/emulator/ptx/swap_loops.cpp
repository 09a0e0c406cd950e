#include "swap_loops.hpp"

#include <algorithm>
#include <optional>

#include "liveness.hpp"

namespace ptx {
namespace {

// What a register may hold, after the load in question. EXACT: its value; DERIVED: something computed from
// it. SPENT: since then a swap was tried, or paths met on which the expected value is another; then it may
// only be compared with what the swap found. NOT_FOUND: it may hold something else than what a swap found.
// Of predicates: NOT_SAME, NOT_OTHER: it may mean something else than that the value was found to be the
// same, or another.
enum Bits : u8 { EXACT = 1, DERIVED = 2, SPENT = 4, NOT_FOUND = 8, NOT_SAME = 16, NOT_OTHER = 32 };
constexpr u8 VALUE = EXACT | DERIVED | SPENT, PLAIN = NOT_FOUND | NOT_SAME | NOT_OTHER;
constexpr size_t MOST = size_t(64) << 20;  // bits of all registers at all statements
using State = std::vector<u8>;

bool is_swap(const Statement& s) {
  return s.words[0] == "atom" && s.operands.size() == 4 &&
         std::find(s.words.begin(), s.words.end(), "cas") != s.words.end();
}
bool is_plain_load(const Statement& s) {
  static const char* const others[] = {"volatile", "relaxed", "acquire", "mmio", "nc", "param", "const"};
  return s.words[0] == "ld" && s.operands.size() == 2 && s.operands[0].kind == Operand::REG &&
         std::none_of(std::begin(others), std::end(others), [&](const char* word) {
           return std::find(s.words.begin(), s.words.end(), word) != s.words.end();
         });
}

struct Place {  // register or symbol, and bytes from there
  i32 reg = -1;
  std::string symbol;
  u64 offset = 0;
  bool operator==(const Place&) const = default;
};

class SwapLoops {
 public:
  SwapLoops(const Function& f, const std::vector<const Row*>& rows,
            const std::vector<std::vector<u32>>& targets);
  // Whether the value of the load goes nowhere but into swaps of its word.
  bool only_swaps(size_t load);
  bool has_swaps() const { return !swaps_.empty(); }

 private:
  Place place_of(const Operand& memory) const;
  bool swaps_same_word(size_t swap, size_t load) const;
  std::optional<State> leave(size_t i, State now, size_t load) const;
  bool swap(const Statement& s, State& now) const;
  u8 compared(const Statement& s, const State& now) const;
  State enter(size_t i) const;

  const Function& f_;
  const std::vector<const Row*>& rows_;
  const std::vector<std::vector<u32>>& targets_;
  std::vector<std::vector<size_t>> before_;  // of every statement
  std::vector<i32> definition_;              // of every register: the statement; -1 none, -2 several
  std::vector<size_t> swaps_;
  i32 base_ = -1;            // the register that the load's address begins with
  std::vector<State> left_;  // after every statement; empty: not reached
};

SwapLoops::SwapLoops(const Function& f, const std::vector<const Row*>& rows,
                     const std::vector<std::vector<u32>>& targets)
    : f_(f), rows_(rows), targets_(targets), definition_(f.registers.size(), -1) {
  const size_t n = f.body.size();
  for (size_t i = 0; i < n; i++)
    if (is_swap(f.body[i])) swaps_.push_back(i);
  if (swaps_.empty() || n * f.registers.size() > MOST) {
    swaps_.clear();
    return;
  }
  before_.resize(n + 1);
  for (size_t i = 0; i < n; i++) {
    const Statement& s = f.body[i];
    const bool goes =
        s.words[0] == "bra" || s.words[0] == "brx" || s.words[0] == "ret" || s.words[0] == "exit";
    if (!goes || s.guard >= 0) before_[i + 1].push_back(i);
    for (u32 t : targets[i])
      if (t <= n) before_[t].push_back(i);
    if (rows[i]->defs && !s.operands.empty() && s.operands[0].kind != Operand::MEMORY)
      registers_of(s.operands[0], [&](u32 r) {
        definition_[r] = definition_[r] == -1 && s.guard < 0 ? static_cast<i32>(i) : -2;
      });
  }
}

// Follows registers that are set once.
Place SwapLoops::place_of(const Operand& memory) const {
  const Operand* at = &memory.parts.at(0);
  Place place{-1, "", memory.imm};
  for (int steps = 0; steps < 32; steps++) {
    place.reg = at->kind == Operand::REG ? at->reg : -1;
    place.symbol = at->kind == Operand::SYMBOL ? at->symbol : "";
    if (at->kind == Operand::SYMBOL) place.offset += at->imm;
    const i32 set = place.reg < 0 ? -1 : definition_[static_cast<size_t>(place.reg)];
    if (set < 0) break;
    const Statement& s = f_.body[static_cast<size_t>(set)];
    const bool sum = s.words[0] == "add" && s.operands.size() == 3 && s.operands[2].kind == Operand::IMM;
    if (!sum && s.words[0] != "cvta" && s.words[0] != "mov") break;
    const Operand& from = s.operands.at(1);
    if (from.kind == Operand::REG ? definition_[static_cast<size_t>(from.reg)] == -2
                                  : from.kind != Operand::SYMBOL)
      break;
    if (sum) place.offset += s.operands[2].imm;
    at = &from;
  }
  return place;
}

bool SwapLoops::swaps_same_word(size_t swap, size_t load) const {
  const Statement &s = f_.body[swap], &l = f_.body[load];
  return width_of(s.words.back()) == width_of(l.words.back()) &&
         place_of(s.operands[1]) == place_of(l.operands[1]);
}

// What is known before a statement: what any way there may bring.
State SwapLoops::enter(size_t i) const {
  State all(f_.registers.size(), 0);
  std::vector<State> ways;
  for (size_t from : before_[i]) {
    if (left_[from].empty()) continue;
    State way = left_[from];
    const Statement& s = f_.body[from];
    if (s.guard >= 0) {  // on the way on which the value was found to be the same, it is as good as found
      const bool jumped = std::find(targets_[from].begin(), targets_[from].end(), i) != targets_[from].end();
      const bool both = jumped && from + 1 == i, holds = jumped != s.guard_negated;
      if (!both && !(way[static_cast<size_t>(s.guard)] & (holds ? NOT_SAME : NOT_OTHER)))
        for (u8& bits : way) bits &= static_cast<u8>(~VALUE);
    }
    ways.push_back(std::move(way));
  }
  bool differ = false;
  for (size_t r = 0; r < all.size(); r++)
    for (const State& way : ways) {
      all[r] |= way[r];
      differ |= (way[r] ^ ways[0][r]) & EXACT;
    }
  for (size_t r = 0; differ && r < all.size(); r++) {
    const bool everywhere =
        std::all_of(ways.begin(), ways.end(), [&](const State& way) { return way[r] & EXACT; });
    if (everywhere || (all[r] & DERIVED)) all[r] |= SPENT;
  }
  return all;
}

// A swap of the word: false if what it would write was computed from another value than it expects.
bool SwapLoops::swap(const Statement& s, State& now) const {
  const auto bits = [&](const Operand& o) {
    return o.reg >= 0 ? now[static_cast<size_t>(o.reg)] & VALUE : 0;
  };
  const int expected = bits(s.operands[2]), put = bits(s.operands[3]);
  if (!expected && !put) return true;
  if (!(expected & EXACT) || (expected & (DERIVED | SPENT)) || (put & SPENT)) return false;
  for (u8& b : now)
    if (b & VALUE) b |= SPENT;
  return true;
}

// Of a setp.eq or setp.ne of the value and what a swap found: the bits of its predicate; 0 for others.
u8 SwapLoops::compared(const Statement& s, const State& now) const {
  if (s.words[0] != "setp" || s.operands.size() != 3 || s.words.size() != 3) return 0;
  const bool equal = s.words[1] == "eq";
  if ((!equal && s.words[1] != "ne") || s.words[2][0] == 'f') return 0;
  for (size_t k = 1; k < 3; k++) {
    const Operand &value = s.operands[k], &found = s.operands[3 - k];
    if (value.kind != Operand::REG || found.kind != Operand::REG) continue;
    const u8 bits = now[static_cast<size_t>(value.reg)];
    if ((bits & VALUE) == (EXACT | SPENT) && !(now[static_cast<size_t>(found.reg)] & (NOT_FOUND | VALUE)))
      return NOT_FOUND | (equal ? NOT_OTHER : NOT_SAME);
  }
  return 0;
}

// What is known after statement `i`; nothing if the value of the load goes elsewhere there.
std::optional<State> SwapLoops::leave(size_t i, State now, size_t load) const {
  const Statement& s = f_.body[i];
  const bool defines = rows_[i]->defs && !s.operands.empty() && s.operands[0].kind != Operand::MEMORY;
  const auto spend = [&] {
    for (u8& b : now) b |= b & VALUE ? PLAIN | SPENT : PLAIN;
  };
  u8 read = 0, guard = s.guard >= 0 ? now[static_cast<size_t>(s.guard)] : 0;
  for (size_t k = defines ? 1 : 0; k < s.operands.size(); k++)
    registers_of(s.operands[k], [&](u32 r) { read |= now[r] & VALUE; });
  const bool found_same = s.guard >= 0 && !(guard & (s.guard_negated ? NOT_OTHER : NOT_SAME));
  if (guard & VALUE) return {};
  u8 set = PLAIN;
  if (i == load) {
    if (read) return {};
    spend();
    set |= EXACT;
  } else if (is_swap(s) && swaps_same_word(i, load)) {
    if (s.guard >= 0 || !swap(s, now)) return {};
    set = NOT_SAME | NOT_OTHER;
  } else if (const u8 bits = compared(s, now)) {
    set = bits;
  } else if (read && !found_same) {
    const Class c = rows_[i]->cls;
    if (!defines || !(c <= Class::MOVE || c == Class::PREDICATE)) return {};
    const bool copy = s.words[0] == "mov" && s.operands[1].kind == Operand::REG && s.operands.size() == 2;
    set |= copy ? read : DERIVED | (read & SPENT);
    if (copy)
      set = static_cast<u8>((set & ~NOT_FOUND) | (now[static_cast<size_t>(s.operands[1].reg)] & NOT_FOUND));
  } else if (s.words[0] == "mov" && s.operands.size() == 2 && s.operands[1].kind == Operand::REG) {
    set = now[static_cast<size_t>(s.operands[1].reg)] & static_cast<u8>(~VALUE);
  }
  if (defines) {
    registers_of(s.operands[0], [&](u32 r) {
      if (static_cast<i32>(r) == base_) spend();
      now[r] = s.guard >= 0 ? now[r] | set : set;
    });
  }
  return now;
}

bool SwapLoops::only_swaps(size_t load) {
  if (std::none_of(swaps_.begin(), swaps_.end(), [&](size_t s) { return swaps_same_word(s, load); }))
    return false;
  base_ = place_of(f_.body[load].operands[1]).reg;
  left_.assign(f_.body.size(), {});
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < f_.body.size(); i++) {
      const bool reached = std::any_of(before_[i].begin(), before_[i].end(),
                                       [&](size_t from) { return !left_[from].empty(); });
      if (i && !reached) continue;
      State in = enter(i);
      if (!i)
        for (u8& bits : in) bits |= PLAIN;
      auto out = leave(i, std::move(in), load);
      if (!out) return false;
      // Bits are only added, so that this ends.
      for (size_t r = 0; r < left_[i].size(); r++) (*out)[r] |= left_[i][r];
      if (*out != left_[i]) left_[i] = std::move(*out), changed = true;
    }
  }
  return true;
}

}  // namespace

std::vector<bool> swap_reads(const Function& f, const std::vector<const Row*>& rows,
                             const std::vector<std::vector<u32>>& targets) {
  SwapLoops loops(f, rows, targets);
  std::vector<bool> found;
  if (!loops.has_swaps()) return found;
  found.resize(f.body.size());
  for (size_t i = 0; i < f.body.size(); i++) found[i] = is_plain_load(f.body[i]) && loops.only_swaps(i);
  return found;
}

}  // namespace ptx

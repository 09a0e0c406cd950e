// Builds the Program of one entry point. Factories reach it through Lower.
#pragma once
#include <map>
#include <memory>
#include <set>

#include "lower.hpp"
#include "machine.hpp"

namespace ptx {

struct LiveRanges;

class Builder {
 public:
  Builder(const Module& module, const Function& entry) : module_(module), p_(std::make_unique<Program>()) {
    p_->module = &module;
    p_->entry = &entry;
  }

  // Matches rows, lays out shared and local memory, gives registers slots, emits. It is called once.
  std::unique_ptr<Program> build();

  const Module& module_;
  std::unique_ptr<Program> p_;
  std::vector<const Function*> functions_;
  struct Local {
    u32 offset, nbytes;
  };
  std::map<std::pair<const Function*, std::string>, Local> locals_;
  std::map<const Function*, std::vector<u32>> slots_;  // register -> byte offset, or predicate number
  std::map<const Function*, u32> start_;
  std::map<const Function*, std::vector<u32>> pc_of_;  // statement -> pc
  struct Frame {
    u32 register_begin, register_end, predicate_begin, predicate_end, local_begin, local_end;
  };
  std::map<const Function*, Frame> frames_;
  std::map<const Function*, std::set<const Function*>> calls_;
  std::map<std::pair<u32, u64>, u32> constants_;
  std::map<std::string, u32> shared_;  // module-scope and function-scope shared variables -> offset
  struct Fixup {
    u32 pc;
    const Function* function;
    i64 statement;
  };
  std::vector<Fixup> fixups_;
  struct ExtFixup {
    u32 ext;
    const Function* function;
    i64 statement;
  };
  std::vector<ExtFixup> ext_fixups_;
  std::vector<std::pair<u32, const Function*>> code_fills_;
  std::map<const Function*, std::vector<const Row*>> rows_;
  std::set<const Statement*> swap_reads_;                   // see swap_loops.hpp
  std::set<const Statement*> unread_;                       // their result is not read anywhere
  std::map<const Function*, std::vector<i32>> tracked_of_;  // register -> tracked index, -1
  u32 local_bytes_ = LOCAL_BASE;
  u32 scratch_ = 0, scratch_predicate_ = 0;

  u32 new_slot(u32 width) {
    const u32 at = p_->frame_bytes;
    p_->frame_bytes += width == 64 ? 256 : 128;
    return at;
  }
  u32 scratch() {
    if (!scratch_) scratch_ = new_slot(64) + 1;
    return scratch_ - 1;
  }
  u32 scratch_predicate() {
    if (!scratch_predicate_) scratch_predicate_ = p_->predicates++;
    return scratch_predicate_;
  }
  u32 constant(u32 width, u64 value) {
    if (width < 64) value = static_cast<u32>(value), width = 32;
    auto [it, fresh] = constants_.try_emplace({width, value}, 0);
    if (fresh) {
      it->second = new_slot(width);
      p_->fills.push_back({Fill::VALUE, it->second, static_cast<u8>(width), value});
    }
    return it->second;
  }
  u32 fill(Fill::Kind kind, u32 width, u64 value, u32 index) {
    for (auto& f : p_->fills)
      if (f.kind == kind && f.width == width && f.value == value && f.index == index) return f.slot;
    const u32 slot = new_slot(width);
    p_->fills.push_back({kind, slot, static_cast<u8>(width), value, index});
    return slot;
  }
  u32 special(const std::string& name, u32 width) {
    for (auto& s : p_->specials)
      if (s.name == name && s.width == width) return s.slot;
    const u32 slot = new_slot(width);
    p_->specials.push_back({name, slot, static_cast<u8>(width)});
    return slot;
  }
  // The value of a symbol: the address of a variable, or a special register.
  u32 symbol(const Function& f, const Operand& o, u32 width);
  void guard(const Function& f, const Statement& s, Ins& ins);
  void emit(const Function& f, Ins ins, Source source);

 private:
  void parameters(const Function& entry);
  std::vector<const Function*> reach(const Function& entry);
  void match();
  void shared_layout();
  void place_shared(const Variable& v);
  void emit_all();

  // slots.cpp
  void allocate(const Function& f);
  void scan(const Function& f, const LiveRanges& live, const std::vector<u32>& order, u32 width);
  std::vector<std::vector<u32>> targets_of(const Function& f) const;
  void track_wgmma(const Function& f);
  std::vector<std::string> branch_names(const Function& f, const Statement& s) const;
  void track(const Function& f, const Statement& s, Ins& ins);
};

}  // namespace ptx

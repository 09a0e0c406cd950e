// Where registers live: their slots, and which of them are watched because a wgmma uses them.
#include <algorithm>

#include "builder.hpp"
#include "liveness.hpp"
#include "swap_loops.hpp"

namespace ptx {
// Registers get slots by a linear scan over their live ranges. That is safe under divergence: a lane only
// follows its own path, and handlers write active lanes only. Registers of wgmma keep a slot of their own,
// because they are written asynchronously.
void Builder::allocate(const Function& f) {
  auto& slot = slots_[&f];
  slot.assign(f.registers.size(), ~0u);
  Frame& frame = frames_[&f];
  frame.predicate_begin = p_->predicates;
  frame.register_begin = p_->frame_bytes;
  for (size_t r = 0; r < f.registers.size(); r++)
    if (f.registers[r].width == 1) slot[r] = p_->predicates++;
  frame.predicate_end = p_->predicates;
  track_wgmma(f);
  const auto targets = targets_of(f);
  const LiveRanges live = live_ranges(f, rows_[&f], targets);
  const std::vector<bool> swaps = swap_reads(f, rows_[&f], targets);
  for (size_t i = 0; i < swaps.size(); i++)
    if (swaps[i]) swap_reads_.insert(&f.body[i]);
  for (size_t i = 0; i < f.body.size(); i++) {
    const Statement& s = f.body[i];
    if (s.words[0] != "atom" || s.operands.empty() || s.operands[0].reg < 0) continue;
    const u32 r = static_cast<u32>(s.operands[0].reg);
    if (live.first[r] == i && live.last[r] == i) unread_.insert(&s);
  }
  std::vector<u32> order;
  for (u32 r = 0; r < f.registers.size(); r++)
    if (live.first[r] != ~0u && f.registers[r].width != 1) order.push_back(r);
  std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return live.first[a] < live.first[b]; });
  for (u32 width : {32u, 64u}) scan(f, live, order, width);
  frame.register_end = p_->frame_bytes;
}

// Gives slots of `width` bits to the registers of that width, in the order of their first use.
void Builder::scan(const Function& f, const LiveRanges& live, const std::vector<u32>& order, u32 width) {
  auto& slot = slots_[&f];
  auto& tracked = tracked_of_[&f];
  std::multimap<u32, u32> busy;  // last use -> slot
  std::vector<u32> spare;
  for (u32 r : order) {
    if ((f.registers[r].width == 64) != (width == 64)) continue;
    if (!tracked.empty() && tracked[r] >= 0) {
      slot[r] = new_slot(width);
      continue;
    }
    while (!busy.empty() && busy.begin()->first < live.first[r]) {
      spare.push_back(busy.begin()->second);
      busy.erase(busy.begin());
    }
    if (spare.empty()) {
      slot[r] = new_slot(width);
    } else {
      slot[r] = spare.back();
      spare.pop_back();
    }
    busy.emplace(live.last[r], slot[r]);
  }
}

// Where every statement may branch to. Throws Unsupported for a label that is not there.
std::vector<std::vector<u32>> Builder::targets_of(const Function& f) const {
  std::vector<std::vector<u32>> targets(f.body.size());
  for (size_t i = 0; i < f.body.size(); i++) {
    const Statement& s = f.body[i];
    if (s.words[0] != "bra" && s.words[0] != "brx") continue;
    for (auto& name : branch_names(f, s)) {
      const i64 t = f.find_label(s.scope, name);
      if (t < 0) throw Unsupported(place_of(module_, s) + ": unknown label `" + name + "`");
      targets[i].push_back(static_cast<u32>(t));
    }
  }
  return targets;
}

// Registers that wgmma reads or writes, and those that reach them through plain moves.
void Builder::track_wgmma(const Function& f) {
  auto& tracked = tracked_of_[&f];
  std::vector<u8> mark;
  auto set = [&](u32 r) {
    if (mark.empty()) mark.assign(f.registers.size(), 0);
    if (f.registers[r].width == 1 || mark[r]) return false;
    mark[r] = 1;
    return true;
  };
  for (auto& s : f.body)
    if (s.words[0] == "wgmma" && s.words.size() > 1 && s.words[1] == "mma_async")
      for (size_t k = 0; k < 2 && k < s.operands.size(); k++)
        if (s.operands[k].kind == Operand::VECTOR) registers_of(s.operands[k], set);
  if (mark.empty()) return;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& s : f.body)
      if (s.words[0] == "mov" && s.operands.size() == 2 && s.operands[0].kind == Operand::REG &&
          s.operands[1].kind == Operand::REG && mark[static_cast<size_t>(s.operands[0].reg)] &&
          f.registers[static_cast<size_t>(s.operands[1].reg)].width != 1)
        changed |= set(static_cast<u32>(s.operands[1].reg));
  }
  tracked.assign(f.registers.size(), -1);
  for (size_t r = 0; r < mark.size(); r++)
    if (mark[r]) tracked[r] = static_cast<i32>(p_->tracked++);
}

std::vector<std::string> Builder::branch_names(const Function& f, const Statement& s) const {
  if (s.words[0] == "bra") {
    if (s.operands.empty() || s.operands[0].kind != Operand::SYMBOL)
      throw Unsupported(place_of(module_, s) + ": malformed branch");
    return {s.operands[0].symbol};
  }
  if (s.operands.size() == 2 && s.operands[1].kind == Operand::SYMBOL)
    for (u32 scope = s.scope; scope != ~0u; scope = f.scope_parent[scope])
      if (auto it = f.branch_targets.find({scope, s.operands[1].symbol}); it != f.branch_targets.end())
        return it->second;
  throw Unsupported(place_of(module_, s) + ": brx.idx without .branchtargets");
}

void Builder::track(const Function& f, const Statement& s, Ins& ins) {
  auto& tracked = tracked_of_[&f];
  p_->track.resize(p_->code.size() + 1, 0);
  if (tracked.empty() || s.words[0] == "wgmma") return;
  std::vector<u32> reads, writes;
  const Row* row = find_row(s);
  for (size_t k = 0; k < s.operands.size(); k++) {
    const bool is_def = row->defs && k == 0 && s.operands[k].kind != Operand::MEMORY;
    registers_of(s.operands[k], [&](u32 r) {
      if (tracked[r] >= 0) (is_def ? writes : reads).push_back(static_cast<u32>(tracked[r]));
    });
  }
  if (reads.empty() && writes.empty()) return;
  const bool move = s.words[0] == "mov" && s.operands.size() == 2 && s.operands[0].kind == Operand::REG;
  if (ins.flow == Flow::NEXT) ins.flow = Flow::TRACKED;
  auto& list = p_->tracked_lists;
  if (list.empty()) list.push_back(0);
  p_->track.back() = static_cast<u32>(list.size());
  list.push_back(static_cast<u32>(reads.size()));
  list.push_back(static_cast<u32>(writes.size()));
  list.push_back(move ? 1 : 0);
  list.insert(list.end(), reads.begin(), reads.end());
  list.insert(list.end(), writes.begin(), writes.end());
}

}  // namespace ptx

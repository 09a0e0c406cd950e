// Where registers live: live ranges, slots, and which registers a wgmma makes worth watching.
#include <algorithm>

#include "builder.hpp"

namespace ptx {
namespace {

template <class F>
void registers_of(const Operand& o, F f) {
  if (o.reg >= 0) f(static_cast<u32>(o.reg));
  for (auto& p : o.parts) registers_of(p, f);
}

}  // namespace

// Live ranges by basic blocks, then a linear scan. Safe under divergence: a lane only follows its own path,
// and handlers write active lanes only. Registers of wgmma keep a slot of their own, they are written
// asynchronously.
void Builder::allocate(const Function& f) {
  const size_t R = f.registers.size(), N = f.body.size();
  auto& slot = slots_[&f];
  slot.assign(R, ~0u);
  Frame& frame = frames_[&f];
  frame.predicate_begin = p_->predicates;
  frame.register_begin = p_->frame_bytes;
  for (size_t r = 0; r < R; r++)
    if (f.registers[r].width == 1) slot[r] = p_->predicates++;
  frame.predicate_end = p_->predicates;
  auto& rows = rows_[&f];
  track_wgmma(f);

  std::vector<u8> leader(N + 1, 0);
  std::vector<std::vector<u32>> targets(N);
  leader[0] = 1;
  for (size_t i = 0; i < N; i++) {
    const Statement& s = f.body[i];
    if (s.words[0] == "bra" || s.words[0] == "brx") {
      for (auto& name : branch_names(f, s)) {
        const i64 t = f.find_label(s.scope, name);
        if (t < 0) throw Unsupported(place_of(module_, s) + ": unknown label `" + name + "`");
        targets[i].push_back(static_cast<u32>(t));
        if (static_cast<size_t>(t) <= N) leader[static_cast<size_t>(t)] = 1;
      }
      leader[i + 1] = 1;
    } else if (s.words[0] == "ret" || s.words[0] == "exit") {
      leader[i + 1] = 1;
    }
  }
  std::vector<u32> begin, block(N);
  for (size_t i = 0; i < N; i++) {
    if (leader[i]) begin.push_back(static_cast<u32>(i));
    block[i] = static_cast<u32>(begin.size() - 1);
  }
  const size_t B = begin.size(), W = (R + 63) / 64;
  begin.push_back(static_cast<u32>(N));
  if (B * W > (u64(64) << 20)) throw Unsupported("function too large");
  std::vector<u64> use(B * W), def(B * W), live(B * W);
  auto bit = [&](std::vector<u64>& v, size_t b, u32 r) -> void { v[b * W + r / 64] |= u64(1) << (r % 64); };
  auto test = [&](const std::vector<u64>& v, size_t b, u32 r) { return v[b * W + r / 64] >> (r % 64) & 1; };
  auto visit = [&](size_t i, auto on_use, auto on_def) {
    const Statement& s = f.body[i];
    const bool wg = s.words[0] == "wgmma";
    const bool defines = rows[i]->defs && !s.operands.empty() && s.operands[0].kind != Operand::MEMORY;
    // Uses first: `add r, r, 1` reads the r that was live before.
    for (size_t k = 0; k < s.operands.size(); k++)
      if (k > 0 || !defines || wg || s.guard >= 0) registers_of(s.operands[k], on_use);
    if (defines) registers_of(s.operands[0], on_def);
  };
  for (size_t b = 0; b < B; b++)
    for (size_t i = begin[b]; i < begin[b + 1]; i++)
      visit(
          i,
          [&](u32 r) {
            if (!test(def, b, r)) bit(use, b, r);
          },
          [&](u32 r) { bit(def, b, r); });
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = B; b-- > 0;) {
      const size_t last = begin[b + 1] - 1;
      const Statement& s = f.body[last];
      const bool ends = s.guard < 0 && (s.words[0] == "bra" || s.words[0] == "brx" || s.words[0] == "ret" ||
                                        s.words[0] == "exit");
      for (size_t k = 0; k < W; k++) {
        u64 out = ends || b + 1 >= B ? 0 : live[(b + 1) * W + k];
        for (u32 t : targets[last])
          if (t < N) out |= live[block[t] * W + k];
        const u64 v = use[b * W + k] | (out & ~def[b * W + k]);
        if (v != live[b * W + k]) live[b * W + k] = v, changed = true;
      }
    }
  }
  std::vector<u32> first(R, ~0u), last(R, 0);
  auto touch = [&](u32 r, size_t i) {
    first[r] = std::min(first[r], static_cast<u32>(i));
    last[r] = std::max(last[r], static_cast<u32>(i));
  };
  for (size_t b = 0; b < B; b++) {
    for (size_t k = 0; k < W; k++)
      for (u64 m = live[b * W + k]; m; m &= m - 1) {
        const u32 r = static_cast<u32>(k * 64 + static_cast<size_t>(std::countr_zero(m)));
        touch(r, begin[b]);
        // Live into b means live out of its predecessors.
        if (b > 0) touch(r, begin[b] - 1);
      }
    const size_t end = begin[b + 1] - 1;
    for (u32 t : targets[end])
      if (t < N)
        for (size_t k = 0; k < W; k++)
          for (u64 m = live[block[t] * W + k]; m; m &= m - 1)
            touch(static_cast<u32>(k * 64 + static_cast<size_t>(std::countr_zero(m))), end);
    for (size_t i = begin[b]; i < begin[b + 1]; i++)
      visit(i, [&](u32 r) { touch(r, i); }, [&](u32 r) { touch(r, i); });
  }
  auto& tracked = tracked_of_[&f];
  std::vector<u32> order;
  for (u32 r = 0; r < R; r++)
    if (first[r] != ~0u && f.registers[r].width != 1) order.push_back(r);
  std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return first[a] < first[b]; });
  for (u32 width : {32u, 64u}) {
    std::multimap<u32, u32> busy;  // last use -> slot
    std::vector<u32> spare;
    for (u32 r : order) {
      if ((f.registers[r].width == 64) != (width == 64)) continue;
      if (!tracked.empty() && tracked[r] >= 0) {
        slot[r] = new_slot(width);
        continue;
      }
      while (!busy.empty() && busy.begin()->first < first[r]) {
        spare.push_back(busy.begin()->second);
        busy.erase(busy.begin());
      }
      if (spare.empty()) {
        slot[r] = new_slot(width);
      } else {
        slot[r] = spare.back();
        spare.pop_back();
      }
      busy.emplace(last[r], slot[r]);
    }
  }
  frame.register_end = p_->frame_bytes;
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

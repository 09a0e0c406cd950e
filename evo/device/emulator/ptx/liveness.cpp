#include "liveness.hpp"

#include <algorithm>

namespace ptx {
namespace {

bool is_jump(const Statement& s) { return s.words[0] == "bra" || s.words[0] == "brx"; }
bool is_end(const Statement& s) { return s.words[0] == "ret" || s.words[0] == "exit"; }

// One bit for every register, in every block.
class BitRows {
 public:
  BitRows(size_t blocks, size_t registers) : words_((registers + 63) / 64), bits_(blocks * words_) {}
  void set(size_t block, u32 r) { bits_[block * words_ + r / 64] |= u64(1) << (r % 64); }
  bool has(size_t block, u32 r) const { return bits_[block * words_ + r / 64] >> (r % 64) & 1; }
  u64& word(size_t block, size_t k) { return bits_[block * words_ + k]; }
  size_t words() const { return words_; }
  template <class F>
  void each(size_t block, F f) const {
    for (size_t k = 0; k < words_; k++)
      for (u64 m = bits_[block * words_ + k]; m; m &= m - 1)
        f(static_cast<u32>(k * 64 + static_cast<size_t>(std::countr_zero(m))));
  }

 private:
  size_t words_;
  std::vector<u64> bits_;
};

class Liveness {
 public:
  Liveness(const Function& f, const std::vector<const Row*>& rows,
           const std::vector<std::vector<u32>>& targets)
      : f_(f), rows_(rows), targets_(targets), block_(f.body.size()) {
    split();
  }
  LiveRanges ranges();

 private:
  void split();
  BitRows live_in();
  template <class Use, class Def>
  void visit(size_t i, Use on_use, Def on_def);

  const Function& f_;
  const std::vector<const Row*>& rows_;
  const std::vector<std::vector<u32>>& targets_;
  std::vector<u32> block_;  // of every statement
  std::vector<u32> begin_;  // of every block, and the end
};

// Basic blocks: they begin at branch targets and after branches and returns.
void Liveness::split() {
  const size_t n = f_.body.size();
  std::vector<u8> leader(n + 1, 0);
  leader[0] = 1;
  for (size_t i = 0; i < n; i++) {
    for (u32 t : targets_[i])
      if (t <= n) leader[t] = 1;
    if (is_jump(f_.body[i]) || is_end(f_.body[i])) leader[i + 1] = 1;
  }
  for (size_t i = 0; i < n; i++) {
    if (leader[i]) begin_.push_back(static_cast<u32>(i));
    block_[i] = static_cast<u32>(begin_.size() - 1);
  }
  const size_t blocks = begin_.size(), words = (f_.registers.size() + 63) / 64;
  begin_.push_back(static_cast<u32>(n));
  if (blocks * words > (u64(64) << 20)) throw Unsupported("function too large");
}

template <class Use, class Def>
void Liveness::visit(size_t i, Use on_use, Def on_def) {
  const Statement& s = f_.body[i];
  const bool wgmma = s.words[0] == "wgmma";
  const bool defines = rows_[i]->defs && !s.operands.empty() && s.operands[0].kind != Operand::MEMORY;
  // Uses come first: `add r, r, 1` reads the r that was live before.
  for (size_t k = 0; k < s.operands.size(); k++)
    if (k > 0 || !defines || wgmma || s.guard >= 0) registers_of(s.operands[k], on_use);
  if (defines) registers_of(s.operands[0], on_def);
}

// The registers that are live where each block begins: the least fixed point of the data flow.
BitRows Liveness::live_in() {
  const size_t blocks = begin_.size() - 1;
  BitRows use(blocks, f_.registers.size()), def = use, in = use;
  for (size_t b = 0; b < blocks; b++)
    for (size_t i = begin_[b]; i < begin_[b + 1]; i++) {
      auto on_use = [&](u32 r) {
        if (!def.has(b, r)) use.set(b, r);
      };
      visit(i, on_use, [&](u32 r) { def.set(b, r); });
    }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = blocks; b-- > 0;) {
      const size_t last = begin_[b + 1] - 1;
      const Statement& s = f_.body[last];
      const bool ends = s.guard < 0 && (is_jump(s) || is_end(s));
      for (size_t k = 0; k < in.words(); k++) {
        u64 out = ends || b + 1 >= blocks ? 0 : in.word(b + 1, k);
        for (u32 t : targets_[last])
          if (t < f_.body.size()) out |= in.word(block_[t], k);
        const u64 v = use.word(b, k) | (out & ~def.word(b, k));
        if (v != in.word(b, k)) in.word(b, k) = v, changed = true;
      }
    }
  }
  return in;
}

LiveRanges Liveness::ranges() {
  const BitRows in = live_in();
  LiveRanges out{std::vector<u32>(f_.registers.size(), ~0u), std::vector<u32>(f_.registers.size(), 0)};
  auto touch = [&](u32 r, size_t i) {
    out.first[r] = std::min(out.first[r], static_cast<u32>(i));
    out.last[r] = std::max(out.last[r], static_cast<u32>(i));
  };
  for (size_t b = 0; b + 1 < begin_.size(); b++) {
    in.each(b, [&](u32 r) {
      touch(r, begin_[b]);
      // What is live into a block is live out of the one before it.
      if (b > 0) touch(r, begin_[b] - 1);
    });
    const size_t end = begin_[b + 1] - 1;
    for (u32 t : targets_[end])
      if (t < f_.body.size()) in.each(block_[t], [&](u32 r) { touch(r, end); });
    for (size_t i = begin_[b]; i < begin_[b + 1]; i++) {
      auto here = [&](u32 r) { touch(r, i); };
      visit(i, here, here);
    }
  }
  return out;
}

}  // namespace

LiveRanges live_ranges(const Function& f, const std::vector<const Row*>& rows,
                       const std::vector<std::vector<u32>>& targets) {
  return Liveness(f, rows, targets).ranges();
}

}  // namespace ptx

// The instruction table: the rows of all families, and how an opcode is matched against a pattern.
#include <algorithm>
#include <unordered_map>

#include "lower.hpp"

namespace ptx {

extern const std::span<const Row> control_rows, integer_rows, bit_rows, select_rows, float_rows, half_rows,
    convert_rows, memory_rows, warp_rows, async_rows, tensor_rows, barrier_rows, mbarrier_rows, bulk_rows,
    wgmma_rows;

std::span<const Family> instruction_table() {
  static const Family families[] = {
      {"integer", integer_rows}, {"integer", bit_rows},     {"select", select_rows},
      {"float", float_rows},     {"half", half_rows},       {"convert", convert_rows},
      {"memory", memory_rows},   {"warp", warp_rows},       {"async", async_rows},
      {"tensor", tensor_rows},   {"barrier", barrier_rows}, {"barrier", mbarrier_rows},
      {"bulk", bulk_rows},       {"wgmma", wgmma_rows},     {"control", control_rows}};
  return families;
}

namespace {

struct Word {
  bool optional;
  std::vector<std::string> choices;
};
struct Pattern {
  const Row* row;
  std::vector<Word> words;  // without the opcode
};

using Index = std::unordered_map<std::string, std::vector<Pattern>>;

std::vector<std::string> split(std::string_view s, char sep) {
  std::vector<std::string> out;
  for (size_t i = 0; i <= s.size();) {
    const size_t e = std::min(s.find(sep, i), s.size());
    if (e > i) out.emplace_back(s.substr(i, e - i));
    i = e + 1;
  }
  return out;
}

const Index& index() {
  static const Index built = [] {
    Index m;
    for (auto& family : instruction_table())
      for (auto& row : family.rows) {
        const auto words = split(row.pattern, ' ');
        Pattern p{&row, {}};
        for (size_t i = 1; i < words.size(); i++)
          p.words.push_back({words[i][0] == '?', split(std::string_view(words[i]).substr(1), '|')});
        m[words[0]].push_back(std::move(p));
      }
    return m;
  }();
  return built;
}

bool matches(const Pattern& p, const std::vector<std::string>& words, size_t i, size_t k) {
  if (k == p.words.size()) return i == words.size();
  const Word& w = p.words[k];
  if (i < words.size())
    for (auto& c : w.choices)
      if (c == words[i] && matches(p, words, i + 1, k + 1)) return true;
  return w.optional && matches(p, words, i, k + 1);
}

// The words of an atomic in the order of its pattern: compilers and libraries write them in others, too.
std::vector<std::string> in_order(std::vector<std::string> words) {
  static const char* const front[] = {"relaxed", "acquire", "release",     "acq_rel",
                                      "cta",     "cluster", "gpu",         "sys",
                                      "global",  "shared",  "shared::cta", "shared::cluster"};
  if (words.size() < 2 || (words[0] != "atom" && words[0] != "red") || words[1] == "async") return words;
  std::stable_sort(words.begin() + 1, words.end(), [](const std::string& a, const std::string& b) {
    return std::find(front, std::end(front), a) < std::find(front, std::end(front), b);
  });
  return words;
}

}  // namespace

const Row* find_row(const Statement& s) {
  if (s.words.size() > 24) return nullptr;
  const std::vector<std::string> words = in_order(s.words);
  auto it = index().find(s.words[0]);
  if (it == index().end()) return nullptr;
  for (auto& p : it->second)
    if (matches(p, words, 1, 0)) return p.row;
  return nullptr;
}

}  // namespace ptx

#include "fragments.hpp"

#include <deque>

namespace ptx {

u32 packed(const Fragment& f) {
  return f.type == F16 || f.type == BF16 ? 2 : f.type == S8 || f.type == U8T ? 4 : 1;
}

u32 distinct(const Fragment& f) {
  const u32 count = f.role == ROLE_A   ? f.shape.m * f.shape.k
                    : f.role == ROLE_B ? f.shape.k * f.shape.n
                                       : f.shape.m * f.shape.n;
  return count / 32 / packed(f);
}

Spot spot(const Fragment& f, u32 l, u32 reg, u32 s) {
  const u32 g = l >> 2, t = l & 3, p = packed(f);
  if (f.role == ROLE_A) {
    if (f.shape.m == 8) return {g, t * p + s + 4 * p * reg};  // 8 rows, k along registers
    const u32 per_tile = f.shape.k / (4 * p) * 2, tile = reg / per_tile, i = reg % per_tile;
    return {tile * 16 + g + 8 * (i & 1), t * p + s + 4 * p * (i >> 1)};
  }
  if (f.role == ROLE_B) {
    const u32 per_tile = f.shape.k / (4 * p), tile = reg / per_tile, i = reg % per_tile;
    return {t * p + s + 4 * p * i, tile * 8 + g};
  }
  const u32 e = reg * p + s;  // accumulators: pairs of columns
  if (f.shape.m == 8) return {g, (e >> 1) * 8 + 2 * t + (e & 1)};
  const u32 tile = e >> 2, i = e & 3, tiles_n = f.shape.n / 8;
  return {(tile / tiles_n) * 16 + g + 8 * (i >> 1), (tile % tiles_n) * 8 + 2 * t + (i & 1)};
}

Spot sides(const Fragment& f) {
  if (f.role == ROLE_A) return {f.shape.m, f.shape.k};
  if (f.role == ROLE_B) return {f.shape.k, f.shape.n};
  return {f.shape.m, f.shape.n};
}

Layout& layout_of(const Fragment& f, bool row_major, u64 ld) {
  static thread_local std::deque<Layout> known;
  const u32 key = u32(row_major) << 31 | u32(f.role) << 28 | u32(f.type) << 24 | f.shape.m << 16 |
                  f.shape.n << 8 | f.shape.k;
  for (Layout& one : known)
    if (one.key == key && one.ld == ld) return one;
  if (known.size() == MAX_LAYOUTS) known.pop_front();
  Layout& fresh = known.emplace_back(Layout{key, ld, {}, true});
  const u32 p = packed(f), size = element_bits(f.type) / 8;
  for (u32 i = 0; i < distinct(f); i++) {
    for (u32 s = 0; s < p; s++)
      for (u32 l = 0; l < 32; l++) {
        const Spot x = spot(f, l, i, s);
        fresh.at.push_back((row_major ? x.row * ld + x.col : x.col * ld + x.row) * size);
      }
    const Spot first = spot(f, 0, i, 0), last = spot(f, 0, i, p - 1);
    fresh.whole &= row_major ? first.row == last.row : first.col == last.col;
  }
  return fresh;
}

}  // namespace ptx

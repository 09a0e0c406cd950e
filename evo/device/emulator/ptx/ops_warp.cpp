// Collectives of a warp. The machine has already brought together the lanes of the member mask, or all live
// lanes.
#include "lanes.hpp"

namespace ptx {
namespace {

u32 value_at(Lower& x, const Operand& o, std::string_view type) { return x.from(o, type); }

void members(Lower& x, size_t i) {
  x.ins.flow = Flow::MEMBERS;
  x.ins.members = x.from(i, "b32");
}

enum Mode : u8 { UP, DOWN, BFLY, IDX };
void shfl(Warp& w, const Ins& I, u32 m) {  // n: mode; ext: predicate + 1
  alignas(64) u32 t[32];
  u32 p = 0;
  const u32 *a = w.u(I.a), *b = w.u(I.b), *c = w.u(I.c);
  for (u32 l = 0; l < 32; l++) {
    const u32 segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31;
    const i32 lane = static_cast<i32>(l), most = static_cast<i32>((l & segment) | (clamp & ~segment)),
              least = static_cast<i32>(l & segment);
    i32 j;
    bool ok;
    switch (I.n) {
      case UP: j = lane - static_cast<i32>(by), ok = j >= most; break;
      case DOWN: j = lane + static_cast<i32>(by), ok = j <= most; break;
      case BFLY: j = lane ^ static_cast<i32>(by), ok = j <= most; break;
      default: j = least | static_cast<i32>(by & ~segment), ok = j <= most;
    }
    if (!ok) j = lane;
    p |= static_cast<u32>(ok) << l;
    if (!(m >> j & 1) && (m >> l & 1))
      throw Fault(EVO_PTX_SYNC, "shfl reads lane " + std::to_string(j) + ", which does not take part",
                  static_cast<int>(l));
    t[l] = a[j];
  }
  u32* d = w.u(I.d);
  if (m == FULL) std::memcpy(d, t, sizeof t);
  else each_lane(m, [&](u32 l) { d[l] = t[l]; });
  if (w.ext[I.ext]) w.set_predicate(w.ext[I.ext] - 1, m, p);
}
void make_shfl(Lower& x) {
  const Operand& d = x.operand(0);
  const bool pair = d.kind == Operand::PAIR;
  x.ins.d = x.to(pair ? d.parts[0] : d, "b32");
  x.ins.a = value_at(x, x.operand(1), "b32"), x.ins.b = x.from(2, "b32"), x.ins.c = x.from(3, "b32");
  x.ins.ext = x.push(pair ? x.predicate_to(d.parts.at(1)) + 1 : 0);
  x.ins.n = x.has("up") ? UP : x.has("down") ? DOWN : x.has("bfly") ? BFLY : IDX;
  members(x, 4);
  x.set(shfl);
}

void vote(Warp& w, const Ins& I, u32 m) {  // n: 0 all, 1 any, 2 uni, 3 ballot
  const u32 p = (w.predicates[I.a] ^ (I.flags ? FULL : 0)) & m;
  if (I.n == 3) each_lane(m, [&](u32 l) { w.u(I.d)[l] = p; });
  else w.set_predicate(I.d, m, (I.n == 0 ? p == m : I.n == 1 ? p != 0 : p == m || p == 0) ? FULL : 0);
}
void make_vote(Lower& x) {
  x.ins.n = x.has("all") ? 0 : x.has("any") ? 1 : x.has("uni") ? 2 : 3;
  x.ins.d = x.ins.n == 3 ? x.to(0, "b32") : x.predicate_to(x.operand(0));
  bool neg = false;
  x.ins.a = x.predicate(x.operand(1), &neg);
  x.ins.flags = neg;
  members(x, 2);
  x.set(vote);
}

template <class T>
void match(Warp& w, const Ins& I, u32 m) {  // n: 0 any, 1 all; c: predicate + 1
  const T* a = reinterpret_cast<const T*>(w.registers + I.a);
  u32 out[32] = {}, all = 1;
  const T first = a[std::countr_zero(m)];
  each_lane(m, [&](u32 l) {
    if (a[l] != first) all = 0;
    each_lane(m, [&](u32 k) { out[l] |= static_cast<u32>(a[k] == a[l]) << k; });
  });
  each_lane(m, [&](u32 l) { w.u(I.d)[l] = I.n ? (all ? m : 0) : out[l]; });
  if (I.c) w.set_predicate(I.c - 1, m, all ? FULL : 0);
}
void make_match(Lower& x) {
  const Operand& d = x.operand(0);
  const bool pair = d.kind == Operand::PAIR;
  x.ins.d = x.to(pair ? d.parts[0] : d, "b32");
  x.ins.c = pair ? x.predicate_to(d.parts.at(1)) + 1 : 0;
  x.ins.n = x.has("all");
  x.ins.a = x.from(1, x.type());
  members(x, 2);
  x.set(width_of(x.type()) == 64 ? match<u64> : match<u32>);
}

// n: 0 add 1 min 2 max 3 and 4 or 5 xor; flags: 1 signed, 2 float, 4 abs, 8 NaN
void redux(Warp& w, const Ins& I, u32 m) {
  const u32* a = w.u(I.a);
  u32 r = a[std::countr_zero(m)];
  if (I.flags & 4) r &= 0x7fffffffu;
  each_lane(m & (m - 1), [&](u32 l) {
    const u32 v = I.flags & 4 ? a[l] & 0x7fffffffu : a[l];
    if (I.flags & 2) {
      const float x = bits<float>(r), y = bits<float>(v);
      r = (I.flags & 8) && (x != x || y != y) ? 0x7fffffffu
                                              : bits<u32>(I.n == 1 ? min_float(x, y) : max_float(x, y));
      return;
    }
    const bool less = I.flags & 1 ? static_cast<i32>(v) < static_cast<i32>(r) : v < r;
    switch (I.n) {
      case 0: r += v; break;
      case 1: r = less ? v : r; break;
      case 2: r = less ? r : v; break;
      case 3: r &= v; break;
      case 4: r |= v; break;
      default: r ^= v;
    }
  });
  each_lane(m, [&](u32 l) { w.u(I.d)[l] = r; });
}
void make_redux(Lower& x) {
  x.ins.d = x.to(0, "b32"), x.ins.a = x.from(1, x.type());
  static const char* const ops[] = {"add", "min", "max", "and", "or", "xor"};
  for (u8 i = 0; i < 6; i++)
    if (x.has(ops[i])) x.ins.n = i;
  x.ins.flags = static_cast<u8>((x.type() == "s32" ? 1 : 0) | (x.type() == "f32" ? 2 : 0) |
                                (x.has("abs") ? 4 : 0) | (x.has("NaN") ? 8 : 0));
  members(x, 2);
  x.set(redux);
}

void activemask(Lower& x) {
  x.ins.d = x.to(0, "b32");
  x.set([](Warp& w, const Ins& I, u32 m) { each_lane(m, [&](u32 l) { w.u(I.d)[l] = m; }); });
}
void elect(Lower& x) {
  const Operand& d = x.operand(0);
  if (d.kind != Operand::PAIR || d.parts.size() != 2) x.unsupported("expected d|p");
  x.ins.d = x.to(d.parts[0], "b32");
  x.ins.c = x.predicate_to(d.parts[1]);
  members(x, 1);
  x.set([](Warp& w, const Ins& I, u32 m) {
    const u32 leader = static_cast<u32>(std::countr_zero(m));
    each_lane(m, [&](u32 l) { w.u(I.d)[l] = leader; });
    w.set_predicate(I.c, m, 1u << leader);
  });
}
void warp_sync(Lower& x) {
  members(x, 0);
  x.ins.flags = 128;  // lanes may come from different places
  x.set([](Warp& w, const Ins&, u32) { w.clock[w.agent]++; });
}

const Row ROWS[] = {
    {"shfl .sync .up|down|bfly|idx .b32", Class::WARP, 1, make_shfl,
     "reading a lane that does not take part is an error"},
    {"vote .sync .all|any|uni .pred", Class::WARP, 1, make_vote},
    {"vote .sync .ballot .b32", Class::WARP, 1, make_vote},
    {"match .any|all .sync .b32|b64", Class::WARP, 1, make_match},
    {"redux .sync .add|min|max .u32|s32", Class::WARP, 1, make_redux},
    {"redux .sync .and|or|xor .b32", Class::WARP, 1, make_redux},
    {"redux .sync .min|max ?abs ?NaN .f32", Class::WARP, 1, make_redux},
    {"activemask .b32", Class::WARP, 1, activemask},
    {"elect .sync", Class::WARP, 1, elect, "elects the lowest lane of the mask"},
    {"bar .warp .sync", Class::WARP, 0, warp_sync},
};
}  // namespace

extern const std::span<const Row> warp_rows;
const std::span<const Row> warp_rows{ROWS};
}  // namespace ptx

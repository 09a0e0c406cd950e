// Logic, shifts, bit fields, permutations of bytes, and dot products of packed integers.
#include <algorithm>

#include "integer.hpp"

namespace ptx {
namespace {

BINARY(and_, T(U(a) & U(b)))
BINARY(or_, T(a | b))
BINARY(xor_, T(a ^ b))
UNARY(not_, T(~U(a)))
UNARY(cnot, T(U(a) == 0))
UNARY(brev, [](U v) {
  U r = 0;
  for (u32 i = 0; i < WIDTH<U>; i++) r = U(r | U(U(v >> i & 1) << (WIDTH<U> - 1 - i)));
  return T(r);
}(U(a)))

void shl(Lower& x) {
  x.ins.d = x.to(0, x.type());
  x.ins.a = x.from(1, x.type());
  x.ins.b = x.from(2, "u32");
  switch (width_of(x.type())) {
    case 16: x.set(op<u32, u32, u32, u32, LANES(b < 16 ? u32(u16(a << (b & 15))) : 0u)>()); break;
    case 32: x.set(op<u32, u32, u32, u32, LANES(b < 32 ? a << (b & 31) : 0u)>()); break;
    default: x.set(op<u64, u64, u32, u32, LANES(b < 64 ? a << (b & 63) : u64(0))>());
  }
}
void shr(Lower& x) {
  x.ins.d = x.to(0, x.type());
  x.ins.a = x.from(1, x.type());
  x.ins.b = x.from(2, "u32");
  const std::string& t = x.type();
  if (t == "s16") x.set(op<u32, u32, u32, u32, LANES(u32(u16(i16(a) >> (b < 15 ? b : 15))))>());
  else if (t == "s32") x.set(op<i32, i32, u32, u32, LANES(a >> (b < 31 ? b : 31))>());
  else if (t == "s64") x.set(op<i64, i64, u32, u32, LANES(a >> (b < 63 ? b : 63))>());
  else if (width_of(t) == 16) x.set(op<u32, u32, u32, u32, LANES(b < 16 ? a >> (b & 15) : 0u)>());
  else if (width_of(t) == 32) x.set(op<u32, u32, u32, u32, LANES(b < 32 ? a >> (b & 31) : 0u)>());
  else x.set(op<u64, u64, u32, u32, LANES(b < 64 ? a >> (b & 63) : u64(0))>());
}
void shf(Lower& x) {  // funnel shift of b:a
  operands(x, 3);
  const bool left = x.has("l"), wrap = x.has("wrap");
  if (left)
    wrap ? x.set(op<u32, u32, u32, u32, LANES(u32((u64(b) << 32 | a) << (c & 31) >> 32))>())
         : x.set(op<u32, u32, u32, u32,
                    LANES(u32((c >= 32 ? a : u32((u64(b) << 32 | a) << (c & 31) >> 32))))>());
  else
    wrap ? x.set(op<u32, u32, u32, u32, LANES(u32((u64(b) << 32 | a) >> (c & 31)))>())
         : x.set(op<u32, u32, u32, u32, LANES(u32(c >= 32 ? b : u32((u64(b) << 32 | a) >> (c & 31))))>());
}

void popc(Lower& x) {
  x.ins.d = x.to(0, "u32");
  x.ins.a = x.from(1, x.type());
  width_of(x.type()) == 64 ? x.set(op<u32, u64, u32, u32, LANES(u32(std::popcount(a)))>())
                           : x.set(op<u32, u32, u32, u32, LANES(u32(std::popcount(a)))>());
}
void clz(Lower& x) {
  x.ins.d = x.to(0, "u32");
  x.ins.a = x.from(1, x.type());
  width_of(x.type()) == 64 ? x.set(op<u32, u64, u32, u32, LANES(u32(std::countl_zero(a)))>())
                           : x.set(op<u32, u32, u32, u32, LANES(u32(std::countl_zero(a)))>());
}
template <class U>
u32 find_top(U v, bool shift) {
  if (!v) return ~0u;
  const u32 zeros = static_cast<u32>(std::countl_zero(v));
  return shift ? zeros : WIDTH<U> - 1 - zeros;
}
void bfind(Lower& x) {
  x.ins.d = x.to(0, "u32");
  x.ins.a = x.from(1, x.type());
  const std::string& t = x.type();
  const bool shift = x.has("shiftamt");
  if (t == "u32")
    x.set(shift ? op<u32, u32, u32, u32, LANES(find_top(a, true))>()
                : op<u32, u32, u32, u32, LANES(find_top(a, false))>());
  else if (t == "s32")
    x.set(shift ? op<u32, i32, u32, u32, LANES(find_top(u32(a < 0 ? ~a : a), true))>()
                : op<u32, i32, u32, u32, LANES(find_top(u32(a < 0 ? ~a : a), false))>());
  else if (t == "u64")
    x.set(shift ? op<u32, u64, u32, u32, LANES(find_top(a, true))>()
                : op<u32, u64, u32, u32, LANES(find_top(a, false))>());
  else
    x.set(shift ? op<u32, i64, u32, u32, LANES(find_top(u64(a < 0 ? ~a : a), true))>()
                : op<u32, i64, u32, u32, LANES(find_top(u64(a < 0 ? ~a : a), false))>());
}
u32 nth_set(u32 mask, u32 base, i32 offset) {  // fns
  if (base > 31) return ~0u;
  if (offset == 0) return mask >> base & 1 ? base : ~0u;
  i32 left = offset > 0 ? offset : -offset;
  for (i32 i = static_cast<i32>(base); i >= 0 && i < 32; i += offset > 0 ? 1 : -1)
    if (mask >> i & 1 && --left == 0) return static_cast<u32>(i);
  return ~0u;
}
void fns(Lower& x) {
  x.ins.d = x.to(0, "u32");
  x.ins.a = x.from(1, "u32"), x.ins.b = x.from(2, "u32"), x.ins.c = x.from(3, "u32");
  x.set(op<u32, u32, u32, i32, LANES(nth_set(a, b, c))>());
}
template <class U, bool SIGNED>
U extract(U a, u32 pos, u32 len) {
  pos &= 255, len &= 255;
  constexpr u32 n = WIDTH<U>;
  const U sign = SIGNED && len ? U(a >> std::min(pos + len - 1, n - 1) & 1) : 0;
  U r = pos >= n ? 0 : a >> pos;
  if (len == 0) return 0;
  const u32 have = pos >= n ? 0 : std::min(len, n - pos);
  if (have < n) r &= (U(1) << have) - 1;
  if (sign && have < n) r |= ~U(0) << have;
  return r;
}
void bfe(Lower& x) {
  const std::string& t = x.type();
  x.ins.d = x.to(0, t);
  x.ins.a = x.from(1, t);
  x.ins.b = x.from(2, "u32"), x.ins.c = x.from(3, "u32");
  if (t == "u32") x.set(op<u32, u32, u32, u32, LANES((extract<u32, false>(a, b, c)))>());
  else if (t == "s32") x.set(op<u32, u32, u32, u32, LANES((extract<u32, true>(a, b, c)))>());
  else if (t == "u64") x.set(op<u64, u64, u32, u32, LANES((extract<u64, false>(a, b, c)))>());
  else x.set(op<u64, u64, u32, u32, LANES((extract<u64, true>(a, b, c)))>());
}
template <class U>
U insert(U a, U b, u32 pos, u32 len) {
  pos &= 255, len &= 255;
  constexpr u32 n = WIDTH<U>;
  if (pos >= n || len == 0) return b;
  const U mask = (len >= n ? ~U(0) : (U(1) << len) - 1) << pos;
  return (a << pos & mask) | (b & ~mask);
}
template <class U>
void bfi_lanes(Warp& w, const Ins& I, u32 m) {
  const U* a = reinterpret_cast<const U*>(w.registers + I.a);
  const U* b = reinterpret_cast<const U*>(w.registers + I.b);
  U* d = reinterpret_cast<U*>(w.registers + I.d);
  const u32* pos = w.u(I.c);
  const u32* len = w.u(w.ext[I.ext]);
  for (u32 l = 0; l < 32; l++)
    if (m >> l & 1) d[l] = insert<U>(a[l], b[l], pos[l], len[l]);
}
void bfi(Lower& x) {
  const std::string& t = x.type();
  x.ins.d = x.to(0, t);
  x.ins.a = x.from(1, t), x.ins.b = x.from(2, t);
  x.ins.c = x.from(3, "u32");
  x.ins.ext = x.push(x.from(4, "u32"));
  x.set(width_of(t) == 64 ? bfi_lanes<u64> : bfi_lanes<u32>);
}
void bmsk(Lower& x) {
  operands(x, 2);
  x.has("wrap") ? x.set(op<u32, u32, u32, u32, LANES(u32(((u64(1) << (b & 31)) - 1) << (a & 31)))>())
                : x.set(op<u32, u32, u32, u32,
                           LANES(a >= 32 ? 0u : u32((b >= 32 ? ~u64(0) : (u64(1) << b) - 1) << a))>());
}

template <bool SIGNED, bool WRAP>
u32 extend(u32 a, u32 b) {  // the low b bits of a
  const u32 n = WRAP ? b & 31 : std::min(b, 32u);
  if (n == 0 || n == 32) return n ? a : 0;
  return SIGNED ? static_cast<u32>(static_cast<i32>(a << (32 - n)) >> (32 - n)) : a & ((1u << n) - 1);
}
void szext(Lower& x) {
  operands(x, 2);
  const bool wrap = x.has("wrap");
  if (x.type() == "s32")
    wrap ? x.set(op<u32, u32, u32, u32, LANES((extend<true, true>(a, b)))>())
         : x.set(op<u32, u32, u32, u32, LANES((extend<true, false>(a, b)))>());
  else
    wrap ? x.set(op<u32, u32, u32, u32, LANES((extend<false, true>(a, b)))>())
         : x.set(op<u32, u32, u32, u32, LANES((extend<false, false>(a, b)))>());
}

u32 permute(u32 a, u32 b, u32 selector) {
  const u64 v = u64(b) << 32 | a;
  u32 r = 0;
  for (u32 i = 0; i < 4; i++) {
    const u32 s = selector >> (4 * i) & 15;
    u32 byte = static_cast<u32>(v >> (8 * (s & 7))) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}
template <int MODE>
u32 permute_mode(u32 a, u32 b, u32 c) {
  static constexpr u8 f4e[4][4] = {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}},
                      b4e[4][4] = {{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}},
                      ecl[4][4] = {{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}},
                      ecr[4][4] = {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}};
  u32 sel = 0;
  for (u32 i = 0; i < 4; i++) {
    const u32 k = c & 3;
    const u32 s = MODE == 0   ? f4e[k][i]
                  : MODE == 1 ? b4e[k][i]
                  : MODE == 2 ? k
                  : MODE == 3 ? ecl[k][i]
                  : MODE == 4 ? ecr[k][i]
                              : 2 * (k & 1) + (i & 1);
    sel |= s << (4 * i);
  }
  return permute(a, b, sel);
}
void prmt(Lower& x) {
  x.ins.d = x.to(0, "b32");
  x.ins.a = x.from(1, "b32"), x.ins.b = x.from(2, "b32"), x.ins.c = x.from(3, "b32");
  if (x.has("f4e")) x.set(op<u32, u32, u32, u32, LANES(permute_mode<0>(a, b, c))>());
  else if (x.has("b4e")) x.set(op<u32, u32, u32, u32, LANES(permute_mode<1>(a, b, c))>());
  else if (x.has("rc8")) x.set(op<u32, u32, u32, u32, LANES(permute_mode<2>(a, b, c))>());
  else if (x.has("ecl")) x.set(op<u32, u32, u32, u32, LANES(permute_mode<3>(a, b, c))>());
  else if (x.has("ecr")) x.set(op<u32, u32, u32, u32, LANES(permute_mode<4>(a, b, c))>());
  else if (x.has("rc16")) x.set(op<u32, u32, u32, u32, LANES(permute_mode<5>(a, b, c))>());
  else x.set(op<u32, u32, u32, u32, LANES(permute(a, b, c))>());
}
void lop3_lanes(Warp& w, const Ins& I, u32 m) {  // imm: the truth table
  const u32 *a = w.u(I.a), *b = w.u(I.b), *c = w.u(I.c);
  u32* d = w.u(I.d);
  u32 k[8];
  for (u32 i = 0; i < 8; i++) k[i] = 0u - (static_cast<u32>(I.imm) >> i & 1);
  alignas(64) u32 r[32];
  for (u32 l = 0; l < 32; l++) {
    const u32 x = a[l], y = b[l], z = c[l];
    r[l] = (k[0] & ~x & ~y & ~z) | (k[1] & ~x & ~y & z) | (k[2] & ~x & y & ~z) | (k[3] & ~x & y & z) |
           (k[4] & x & ~y & ~z) | (k[5] & x & ~y & z) | (k[6] & x & y & ~z) | (k[7] & x & y & z);
  }
  for (u32 l = 0; l < 32; l++)
    if (m >> l & 1) d[l] = r[l];
}
void lop3(Lower& x) {
  if (x.operand(0).kind == Operand::PAIR) x.unsupported("lop3 with a predicate result");
  x.ins.d = x.to(0, "b32");
  x.ins.a = x.from(1, "b32"), x.ins.b = x.from(2, "b32"), x.ins.c = x.from(3, "b32");
  x.ins.imm = static_cast<i32>(x.immediate(4) & 255);
  x.set(lop3_lanes);
}
template <bool SA, bool SB>
u32 dot4(u32 a, u32 b, u32 c) {
  for (u32 i = 0; i < 4; i++) {
    const i32 x = SA ? i32(i8(a >> (8 * i))) : i32(u8(a >> (8 * i))),
              y = SB ? i32(i8(b >> (8 * i))) : i32(u8(b >> (8 * i)));
    c += static_cast<u32>(x * y);
  }
  return c;
}
template <bool SA, bool SB, bool HI>
u32 dot2(u32 a, u32 b, u32 c) {
  for (u32 i = 0; i < 2; i++) {
    const i32 x = SA ? i32(i16(a >> (16 * i))) : i32(u16(a >> (16 * i)));
    const u32 k = i + (HI ? 2 : 0);
    const i32 y = SB ? i32(i8(b >> (8 * k))) : i32(u8(b >> (8 * k)));
    c += static_cast<u32>(x * y);
  }
  return c;
}
void dp4a(Lower& x) {
  x.ins.d = x.to(0, "b32");
  x.ins.a = x.from(1, "b32"), x.ins.b = x.from(2, "b32"), x.ins.c = x.from(3, "b32");
  const bool sa = x.s.words[1][0] == 's', sb = x.s.words[2][0] == 's';
  if (sa)
    sb ? x.set(op<u32, u32, u32, u32, LANES((dot4<true, true>(a, b, c)))>())
       : x.set(op<u32, u32, u32, u32, LANES((dot4<true, false>(a, b, c)))>());
  else
    sb ? x.set(op<u32, u32, u32, u32, LANES((dot4<false, true>(a, b, c)))>())
       : x.set(op<u32, u32, u32, u32, LANES((dot4<false, false>(a, b, c)))>());
}
void dp2a(Lower& x) {
  x.ins.d = x.to(0, "b32");
  x.ins.a = x.from(1, "b32"), x.ins.b = x.from(2, "b32"), x.ins.c = x.from(3, "b32");
  const bool hi = x.has("hi"), sa = x.s.words[2][0] == 's', sb = x.s.words[3][0] == 's';
  auto pick = [&]<bool H>(std::bool_constant<H>) {
    if (sa)
      sb ? x.set(op<u32, u32, u32, u32, LANES((dot2<true, true, H>(a, b, c)))>())
         : x.set(op<u32, u32, u32, u32, LANES((dot2<true, false, H>(a, b, c)))>());
    else
      sb ? x.set(op<u32, u32, u32, u32, LANES((dot2<false, true, H>(a, b, c)))>())
         : x.set(op<u32, u32, u32, u32, LANES((dot2<false, false, H>(a, b, c)))>());
  };
  hi ? pick(std::true_type{}) : pick(std::false_type{});
}

#define BIT_TYPES ".b16|b32|b64"
const Row ROWS[] = {
    {"and " BIT_TYPES, Class::INT, 1, and_},
    {"or " BIT_TYPES, Class::INT, 1, or_},
    {"xor " BIT_TYPES, Class::INT, 1, xor_},
    {"not " BIT_TYPES, Class::INT, 1, not_},
    {"cnot " BIT_TYPES, Class::INT, 1, cnot},
    {"shl " BIT_TYPES, Class::INT, 1, shl},
    {"shr .b16|b32|b64|u16|u32|u64|s16|s32|s64", Class::INT, 1, shr},
    {"shf .l|r .wrap|clamp .b32", Class::INT, 1, shf},
    {"popc .b32|b64", Class::INT, 1, popc},
    {"clz .b32|b64", Class::INT, 1, clz},
    {"brev .b32|b64", Class::INT, 1, brev},
    {"bfind ?shiftamt .u32|s32|u64|s64", Class::INT, 1, bfind},
    {"fns .b32", Class::INT, 1, fns},
    {"bfe .u32|s32|u64|s64", Class::INT, 1, bfe},
    {"bfi .b32|b64", Class::INT, 1, bfi},
    {"szext .clamp|wrap .u32|s32", Class::INT, 1, szext},
    {"bmsk .clamp|wrap .b32", Class::INT, 1, bmsk},
    {"prmt .b32 ?f4e|b4e|rc8|ecl|ecr|rc16", Class::INT, 1, prmt},
    {"lop3 .b32", Class::INT, 1, lop3},
    {"dp4a .u32|s32 .u32|s32", Class::INT, 1, dp4a},
    {"dp2a .lo|hi .u32|s32 .u32|s32", Class::INT, 1, dp2a},
};
}  // namespace

extern const std::span<const Row> bit_rows;
const std::span<const Row> bit_rows{ROWS};
}  // namespace ptx

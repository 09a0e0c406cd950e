// Integer arithmetic, logic and bit fields.
#include <algorithm>

#include "lanes.hpp"

namespace ptx {
namespace {

using i128 = __int128;
using u128 = unsigned __int128;

template <class T>
constexpr u32 WIDTH = sizeof(T) * 8;
template <class T>
inline slot_t<T> put(T x) {
  return static_cast<slot_t<T>>(static_cast<std::make_unsigned_t<T>>(x));
}
template <class T>
using wide_t =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, i32, u32>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, i64, u64>,
                                          std::conditional_t<std::is_signed_v<T>, i128, u128>>>;

// F over values of type T in slots of any width.
template <class T, auto F, bool ALL>
void typed(Warp& w, const Ins& I, u32 m) {
  using S = slot_t<T>;
  S* d = reinterpret_cast<S*>(w.registers + I.d);
  const S* a = reinterpret_cast<const S*>(w.registers + I.a);
  const S* b = reinterpret_cast<const S*>(w.registers + I.b);
  const S* c = reinterpret_cast<const S*>(w.registers + I.c);
#pragma GCC ivdep
  for (int l = 0; l < 32; l++)
    if (ALL || (m >> l & 1))
      d[l] = put<T>(static_cast<T>(F(static_cast<T>(a[l]), static_cast<T>(b[l]), static_cast<T>(c[l]))));
}
template <class T, auto F>
Handlers in_type() {
  return {typed<T, F, true>, typed<T, F, false>};
}

template <class F>
void by_type(Lower& x, const std::string& type, F f) {
  if (type == "u16" || type == "b16") f(u16{});
  else if (type == "s16") f(i16{});
  else if (type == "u32" || type == "b32") f(u32{});
  else if (type == "s32") f(i32{});
  else if (type == "u64" || type == "b64") f(u64{});
  else if (type == "s64") f(i64{});
  else x.unsupported("unsupported type ." + type);
}

void operands(Lower& x, size_t n) {
  if (x.count() != n + 1) x.unsupported("expected " + std::to_string(n + 1) + " operands");
  const std::string& t = x.type();
  x.ins.d = x.to(0, t);
  if (n > 0) x.ins.a = x.from(1, t);
  if (n > 1) x.ins.b = x.from(2, t);
  if (n > 2) x.ins.c = x.from(3, t);
}

// The arithmetic below is on unsigned types, where wrapping is defined.
#define BINARY(NAME, EXPRESSION)           \
  void NAME(Lower& x) {                    \
    operands(x, 2);                        \
    by_type(x, x.type(), [&]<class T>(T) { \
      x.set(in_type<T, [](T a, T b, T) {   \
        using U = std::make_unsigned_t<T>; \
        (void)sizeof(U);                   \
        return EXPRESSION;                 \
      }>());                               \
    });                                    \
  }
BINARY(add, T(U(U(a) + U(b))))
BINARY(sub, T(U(U(a) - U(b))))
BINARY(mul_lo, T(wide_t<U>(U(a)) * wide_t<U>(U(b))))
BINARY(div, T(b == 0 ? T(~U(0)) : (std::is_signed_v<T> && b == T(-1)) ? T(U(0) - U(a)) : T(a / b)))
BINARY(rem, T(b == 0 ? a : (std::is_signed_v<T> && b == T(-1)) ? T(0) : T(a % b)))
BINARY(min_, T(a < b ? a : b))
BINARY(max_, T(a > b ? a : b))
BINARY(and_, T(U(a) & U(b)))
BINARY(or_, T(a | b))
BINARY(xor_, T(a ^ b))
BINARY(mul_hi, T(wide_t<T>(a) * wide_t<T>(b) >> WIDTH<T>))
#undef BINARY

#define UNARY(NAME, EXPRESSION)            \
  void NAME(Lower& x) {                    \
    operands(x, 1);                        \
    by_type(x, x.type(), [&]<class T>(T) { \
      x.set(in_type<T, [](T a, T, T) {     \
        using U = std::make_unsigned_t<T>; \
        return EXPRESSION;                 \
      }>());                               \
    });                                    \
  }
UNARY(neg, T(U(0) - U(a)))
UNARY(not_, T(~U(a)))
UNARY(cnot, T(U(a) == 0))
UNARY(abs_, T(a < 0 ? T(U(0) - U(a)) : a))
UNARY(brev, [](U v) {
  U r = 0;
  for (u32 i = 0; i < WIDTH<U>; i++) r = U(r | U(U(v >> i & 1) << (WIDTH<U> - 1 - i)));
  return T(r);
}(U(a)))
#undef UNARY

void mad_lo(Lower& x) {
  operands(x, 3);
  by_type(x, x.type(), [&]<class T>(T) {
    using U = std::make_unsigned_t<T>;
    x.set(in_type<T, [](T a, T b, T c) {
      using W = std::make_unsigned_t<T>;
      return T(wide_t<W>(W(a)) * W(b) + W(c));
    }>());
    (void)sizeof(U);
  });
}
void mad_hi(Lower& x) {
  operands(x, 3);
  by_type(x, x.type(), [&]<class T>(T) {
    x.set(in_type<T, [](T a, T b, T c) {
      using U = std::make_unsigned_t<T>;
      return T(U(wide_t<T>(a) * wide_t<T>(b) >> WIDTH<T>) + U(c));
    }>());
  });
}
void add_sat(Lower& x) {
  operands(x, 2);
  x.set(op<i32, i32, i32, i32, LANES(i32(std::clamp<i64>(i64(a) + b, INT32_MIN, INT32_MAX)))>());
}
void sub_sat(Lower& x) {
  operands(x, 2);
  x.set(op<i32, i32, i32, i32, LANES(i32(std::clamp<i64>(i64(a) - b, INT32_MIN, INT32_MAX)))>());
}

template <class T, bool MAD>
void wide_handlers(Lower& x) {
  using W = wide_t<T>;
  using D = std::make_unsigned_t<W>;
  constexpr auto f = [](slot_t<T> a, slot_t<T> b, D c) { return D(D(W(T(a)) * W(T(b))) + (MAD ? c : D(0))); };
  x.set(op<D, slot_t<T>, slot_t<T>, D, f>());
}
void mul_wide(Lower& x) {
  const bool mad = x.s.words[0] == "mad";
  const std::string& t = x.type();
  const std::string wide = t == "u16" ? "u32" : t == "s16" ? "s32" : t == "u32" ? "u64" : "s64";
  x.ins.d = x.to(0, wide);
  x.ins.a = x.from(1, t);
  x.ins.b = x.from(2, t);
  x.ins.c = mad ? x.from(3, wide) : x.constant(width_of(wide), 0);
  auto pick = [&]<class T>(T) { mad ? wide_handlers<T, true>(x) : wide_handlers<T, false>(x); };
  if (t == "u16") pick(u16{});
  else if (t == "s16") pick(i16{});
  else if (t == "u32") pick(u32{});
  else if (t == "s32") pick(i32{});
  else x.unsupported("unsupported type");
}
void mul24(Lower& x) {
  const bool mad = x.s.words[0] == "mad24", hi = x.has("hi"), is_signed = x.type() == "s32";
  operands(x, mad ? 3 : 2);
  if (!mad) x.ins.c = x.constant(32, 0);
  if (hi)
    is_signed ? x.set(op<i32, i32, i32, i32,
                         LANES(i32((i64(i32(u32(a) << 8) >> 8) * (i32(u32(b) << 8) >> 8)) >> 16) + c)>())
              : x.set(op<u32, u32, u32, u32, LANES(u32(u64(a & 0xffffff) * (b & 0xffffff) >> 16) + c)>());
  else
    is_signed
        ? x.set(
              op<u32, i32, i32, u32, LANES(u32(i64(i32(u32(a) << 8) >> 8) * (i32(u32(b) << 8) >> 8)) + c)>())
        : x.set(op<u32, u32, u32, u32, LANES(u32(u64(a & 0xffffff) * (b & 0xffffff)) + c)>());
}
void sad(Lower& x) {
  operands(x, 3);
  by_type(x, x.type(), [&]<class T>(T) {
    x.set(in_type<T, [](T a, T b, T c) {
      using U = std::make_unsigned_t<T>;
      return T(U(c) + (a < b ? U(U(b) - U(a)) : U(U(a) - U(b))));
    }>());
  });
}

// Carry chains: the condition code is a predicate of its own (the last one reserved).
template <class T, bool SUB, bool IN, bool OUT>
void carry(Warp& w, const Ins& I, u32 m) {
  const T* a = reinterpret_cast<const T*>(w.registers + I.a);
  const T* b = reinterpret_cast<const T*>(w.registers + I.b);
  T* d = reinterpret_cast<T*>(w.registers + I.d);
  u32 cc = w.predicates[I.c], out = 0;
  each_lane(m, [&](u32 l) {
    const u128 in = IN ? cc >> l & 1 : 0;
    const u128 r = SUB ? u128(a[l]) - u128(b[l]) - in : u128(a[l]) + u128(b[l]) + in;
    d[l] = static_cast<T>(r);
    out |= static_cast<u32>(r >> WIDTH<T> & 1) << l;
  });
  if (OUT) w.set_predicate(I.c, m, out);
}
template <class T, bool SUB>
Fn carry_fn(bool in, bool out) {
  if (in) return out ? carry<T, SUB, true, true> : carry<T, SUB, true, false>;
  return carry<T, SUB, false, true>;
}
u32 condition_code(Lower& x);
void add_carry(Lower& x) {
  operands(x, 2);
  const std::string& o = x.s.words[0];
  const bool sub = o[0] == 's', in = o == "addc" || o == "subc", out = x.has("cc");
  x.ins.c = condition_code(x);
  if (width_of(x.type()) == 64) x.set(sub ? carry_fn<u64, true>(in, out) : carry_fn<u64, false>(in, out));
  else x.set(sub ? carry_fn<u32, true>(in, out) : carry_fn<u32, false>(in, out));
}
template <class T, bool HI>
void mad_carry(Warp& w, const Ins& I, u32 m) {  // n: 1 carry in, 2 carry out; flags: signed; ext: c
  const T* a = reinterpret_cast<const T*>(w.registers + I.a);
  const T* b = reinterpret_cast<const T*>(w.registers + I.b);
  const T* c = reinterpret_cast<const T*>(w.registers + w.ext[I.ext]);
  T* d = reinterpret_cast<T*>(w.registers + I.d);
  u32 cc = w.predicates[I.c], out = 0;
  using S = std::make_signed_t<T>;
  each_lane(m, [&](u32 l) {
    const u128 p = I.flags ? static_cast<u128>(static_cast<i128>(static_cast<S>(a[l])) * static_cast<S>(b[l]))
                           : static_cast<u128>(a[l]) * b[l];
    const u128 r =
        static_cast<u128>(static_cast<T>(HI ? p >> WIDTH<T> : p)) + c[l] + ((I.n & 1) ? cc >> l & 1 : 0);
    d[l] = static_cast<T>(r);
    out |= static_cast<u32>(r >> WIDTH<T> & 1) << l;
  });
  if (I.n & 2) w.set_predicate(I.c, m, out);
}
void mad_cc(Lower& x) {
  operands(x, 3);
  x.ins.ext = x.push(x.ins.c);
  x.ins.n = static_cast<u8>((x.s.words[0] == "madc" ? 1 : 0) | (x.has("cc") ? 2 : 0));
  x.ins.flags = x.type()[0] == 's';
  x.ins.c = condition_code(x);
  const bool hi = x.has("hi");
  if (width_of(x.type()) == 64) x.set(hi ? mad_carry<u64, true> : mad_carry<u64, false>);
  else x.set(hi ? mad_carry<u32, true> : mad_carry<u32, false>);
}
// The predicate that holds the condition code. It is given a number when an instruction first needs it.
u32 condition_code(Lower& x) {
  Program& p = x.program();
  for (auto& s : p.specials)
    if (s.name == "%cc") return s.slot;
  const u32 n = p.predicates++;
  p.specials.push_back({"%cc", n, 1});
  return n;
}

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

#define INT_TYPES ".u16|s16|u32|s32|u64|s64"
#define BIT_TYPES ".b16|b32|b64"
const Row ROWS[] = {
    {"add " INT_TYPES, Class::INT, 1, add},
    {"add .sat .s32", Class::INT, 1, add_sat},
    {"add .cc .u32|s32|u64|s64", Class::INT, 1, add_carry},
    {"addc ?cc .u32|s32|u64|s64", Class::INT, 1, add_carry},
    {"sub " INT_TYPES, Class::INT, 1, sub},
    {"sub .sat .s32", Class::INT, 1, sub_sat},
    {"sub .cc .u32|s32|u64|s64", Class::INT, 1, add_carry},
    {"subc ?cc .u32|s32|u64|s64", Class::INT, 1, add_carry},
    {"mul .lo " INT_TYPES, Class::INT, 1, mul_lo},
    {"mul .hi " INT_TYPES, Class::INT, 1, mul_hi},
    {"mul .wide .u16|s16|u32|s32", Class::INT, 1, mul_wide},
    {"mul24 .lo|hi .u32|s32", Class::INT, 1, mul24},
    {"mad .lo " INT_TYPES, Class::INT, 1, mad_lo},
    {"mad .hi " INT_TYPES, Class::INT, 1, mad_hi},
    {"mad .wide .u16|s16|u32|s32", Class::INT, 1, mul_wide},
    {"mad24 .lo|hi .u32|s32", Class::INT, 1, mul24},
    {"mad .lo|hi .cc .u32|s32|u64|s64", Class::INT, 1, mad_cc},
    {"madc .lo|hi ?cc .u32|s32|u64|s64", Class::INT, 1, mad_cc},
    {"sad " INT_TYPES, Class::INT, 1, sad},
    {"div " INT_TYPES, Class::INT, 1, div, "division by zero gives all ones"},
    {"rem " INT_TYPES, Class::INT, 1, rem, "division by zero gives the dividend"},
    {"abs .s16|s32|s64", Class::INT, 1, abs_},
    {"neg .s16|s32|s64", Class::INT, 1, neg},
    {"min " INT_TYPES, Class::INT, 1, min_},
    {"max " INT_TYPES, Class::INT, 1, max_},
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

extern const std::span<const Row> integer_rows;
const std::span<const Row> integer_rows{ROWS};
}  // namespace ptx

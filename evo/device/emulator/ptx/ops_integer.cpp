// Integer arithmetic.
#include <algorithm>

#include "integer.hpp"

namespace ptx {
namespace {

BINARY(add, T(U(U(a) + U(b))))
BINARY(sub, T(U(U(a) - U(b))))
BINARY(mul_lo, T(wide_t<U>(U(a)) * wide_t<U>(U(b))))
BINARY(div, T(b == 0 ? T(~U(0)) : (std::is_signed_v<T> && b == T(-1)) ? T(U(0) - U(a)) : T(a / b)))
BINARY(rem, T(b == 0 ? a : (std::is_signed_v<T> && b == T(-1)) ? T(0) : T(a % b)))
BINARY(min_, T(a < b ? a : b))
BINARY(max_, T(a > b ? a : b))
BINARY(mul_hi, T(wide_t<T>(a) * wide_t<T>(b) >> WIDTH<T>))
UNARY(neg, T(U(0) - U(a)))
UNARY(abs_, T(a < 0 ? T(U(0) - U(a)) : a))

void mad_lo(Lower& x) {
  operands(x, 3);
  by_type(x, x.type(), [&]<class T>(T) {
    x.set(in_type<T, [](T a, T b, T c) {
      using U = std::make_unsigned_t<T>;
      return T(wide_t<U>(U(a)) * U(b) + U(c));
    }>());
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

#define INT_TYPES ".u16|s16|u32|s32|u64|s64"
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
};
}  // namespace

extern const std::span<const Row> integer_rows;
const std::span<const Row> integer_rows{ROWS};
}  // namespace ptx

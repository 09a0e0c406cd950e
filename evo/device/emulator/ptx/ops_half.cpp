// fp16 and bf16 arithmetic, scalar and packed in pairs. add, sub and mul are computed in fp32 and rounded
// again, which is harmless with 24 >= 2*11 + 2 bits. fma goes through double with a sticky bit.
#include "lanes.hpp"

namespace ptx {
namespace {

struct Half {
  static float load(u32 h) { return half_to_float(h); }
  static u32 store(float f) { return float_to_half(f); }
  static constexpr float smallest = 0x1p-14f;  // normal
  static constexpr u32 nan = 0x7fff, one = 0x3c00;
};
struct Bfloat {
  static float load(u32 h) { return bf16_to_float(h); }
  static u32 store(float f) { return float_to_bf16(f); }
  static constexpr float smallest = 0x1p-126f;
  static constexpr u32 nan = 0x7fff, one = 0x3f80;
};

template <class T>
inline float flush_half(float x) {
  return std::fabs(x) < T::smallest ? std::copysign(0.f, x) : x;
}

// One element: F(a, b, c) as float, rounded.
template <class T, auto F, bool Z, int LIMIT>  // LIMIT: 0 none, 1 .sat, 2 .relu
inline u32 element(u32 a, u32 b, u32 c) {
  float x = T::load(a & 0xffff), y = T::load(b & 0xffff), z = T::load(c & 0xffff);
  if (Z) x = flush_half<T>(x), y = flush_half<T>(y), z = flush_half<T>(z);
  float r = F(x, y, z);
  if (Z) r = flush_half<T>(r);
  if (LIMIT == 1) r = r > 0 ? (r > 1 ? 1.f : r) : 0.f;  // NaN and -0 give +0, as an H200 has it
  if (LIMIT == 2) r = r <= 0 ? 0.f : r;
  return T::store(r);
}
template <class T, auto F, bool Z, int LIMIT>
Handlers scalar(bool packed) {
  if (packed)
    return op<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) {
      return element<T, F, Z, LIMIT>(a, b, c) | element<T, F, Z, LIMIT>(a >> 16, b >> 16, c >> 16) << 16;
    }>();
  return op<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) { return element<T, F, Z, LIMIT>(a, b, c); }>();
}
template <class T, auto F>
void with_limits(Lower& x, bool packed) {
  const int limit = x.has("sat") ? 1 : x.has("relu") ? 2 : 0;
  if (x.has("ftz"))
    x.set(limit == 1   ? scalar<T, F, true, 1>(packed)
          : limit == 2 ? scalar<T, F, true, 2>(packed)
                       : scalar<T, F, true, 0>(packed));
  else
    x.set(limit == 1   ? scalar<T, F, false, 1>(packed)
          : limit == 2 ? scalar<T, F, false, 2>(packed)
                       : scalar<T, F, false, 0>(packed));
}
template <auto F>
void with_type(Lower& x, size_t n) {
  if (x.count() != n + 1) x.unsupported("expected " + std::to_string(n + 1) + " operands");
  const std::string& t = x.type();
  x.ins.d = x.to(0, t);
  x.ins.a = x.from(1, t);
  if (n > 1) x.ins.b = x.from(2, t);
  if (n > 2) x.ins.c = x.from(3, t);
  const bool packed = t.ends_with("x2");
  if (t[0] == 'b') with_limits<Bfloat, F>(x, packed);
  else with_limits<Half, F>(x, packed);
}

inline float max_nan(float a, float b) {
  return a != a || b != b ? bits<float>(0x7fffffffu) : max_float(a, b);
}
inline float min_nan(float a, float b) {
  return a != a || b != b ? bits<float>(0x7fffffffu) : min_float(a, b);
}

void add(Lower& x) {
  with_type<[](float a, float b, float) { return a + b; }>(x, 2);
}
void sub(Lower& x) {
  with_type<[](float a, float b, float) { return a - b; }>(x, 2);
}
void mul(Lower& x) {
  with_type<[](float a, float b, float) { return a * b; }>(x, 2);
}
void fma_(Lower& x) {
  with_type<[](float a, float b, float c) { return odd_float(odd_fma(a, b, c)); }>(x, 3);
}
void max_(Lower& x) {
  x.has("NaN") ? with_type<[](float a, float b, float) { return max_nan(a, b); }>(x, 2)
               : with_type<[](float a, float b, float) { return max_float(a, b); }>(x, 2);
}
void min_(Lower& x) {
  x.has("NaN") ? with_type<[](float a, float b, float) { return min_nan(a, b); }>(x, 2)
               : with_type<[](float a, float b, float) { return min_float(a, b); }>(x, 2);
}
void ex2(Lower& x) {
  x.source.exp2 = true;
  with_type<[](float a, float, float) { return std::exp2(a); }>(x, 1);
}
void tanh_(Lower& x) {
  with_type<[](float a, float, float) { return std::tanh(a); }>(x, 1);
}

void neg_abs(Lower& x) {
  const std::string& t = x.type();
  x.ins.d = x.to(0, t), x.ins.a = x.from(1, t);
  const bool packed = t.ends_with("x2");
  if (x.s.words[0] == "neg")
    packed ? x.set(op<u32, u32, u32, u32, LANES(a ^ 0x80008000u)>())
           : x.set(op<u32, u32, u32, u32, LANES((a ^ 0x8000u) & 0xffffu)>());
  else
    packed ? x.set(op<u32, u32, u32, u32, LANES(a & 0x7fff7fffu)>())
           : x.set(op<u32, u32, u32, u32, LANES(a & 0x7fffu)>());
}

bool holds(u32 how, float a, float b) {
  const bool nan = a != a || b != b;
  switch (how & 15) {
    case 0: return !nan && a == b;
    case 1: return !nan && a != b;
    case 2: return a < b;
    case 3: return a <= b;
    case 4: return a > b;
    case 5: return a >= b;
    case 6: return nan || a == b;
    case 7: return nan || a != b;
    case 8: return nan || a < b;
    case 9: return nan || a <= b;
    case 10: return nan || a > b;
    case 11: return nan || a >= b;
    case 12: return !nan;
    default: return nan;
  }
}
u8 comparison(Lower& x) {
  static const char* const names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                      "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (u8 i = 0; i < 14; i++)
    if (x.word(1) == names[i]) return i;
  x.unsupported("unsupported comparison");
}
// set on packed halves: each half becomes 1.0 or 0 (float result) or all ones or 0 (integer result). n:
// comparison; flags: 1 bf16, 2 integer result, 4 packed, 8 32-bit integer result
void set_lanes(Warp& w, const Ins& I, u32 m) {
  each_lane(m, [&](u32 l) {
    u32 r = 0;
    for (u32 k = 0; k < (I.flags & 4 ? 2u : 1u); k++) {
      const u32 a = w.u(I.a)[l] >> (16 * k) & 0xffff, b = w.u(I.b)[l] >> (16 * k) & 0xffff;
      const bool t = I.flags & 1 ? holds(I.n, bf16_to_float(a), bf16_to_float(b))
                                 : holds(I.n, half_to_float(a), half_to_float(b));
      const u32 yes = I.flags & 8 ? FULL : I.flags & 2 ? 0xffffu : I.flags & 1 ? Bfloat::one : Half::one;
      r |= (t ? yes : 0) << (16 * k);
    }
    w.u(I.d)[l] = r;
  });
}
void set_(Lower& x) {
  const std::string &t = x.type(), &d = x.word(x.s.words.size() - 2);
  const bool packed = t.ends_with("x2"), integer = d[0] == 'u' || d[0] == 's';
  x.ins.d = x.to(0, d), x.ins.a = x.from(1, t), x.ins.b = x.from(2, t);
  x.ins.n = comparison(x);
  x.ins.flags = static_cast<u8>((t[0] == 'b' ? 1 : 0) | (integer ? 2 : 0) | (packed ? 4 : 0) |
                                (integer && !packed && width_of(d) == 32 ? 8 : 0));
  x.set(set_lanes);
}
void setp_lanes(Warp& w, const Ins& I, u32 m) {  // c: second predicate + 1, low half and high half
  u32 r[2] = {};
  each_lane(m, [&](u32 l) {
    for (u32 k = 0; k < 2; k++) {
      const u32 a = w.u(I.a)[l] >> (16 * k) & 0xffff, b = w.u(I.b)[l] >> (16 * k) & 0xffff;
      r[k] |= static_cast<u32>(I.flags & 1 ? holds(I.n, bf16_to_float(a), bf16_to_float(b))
                                           : holds(I.n, half_to_float(a), half_to_float(b)))
              << l;
    }
  });
  w.set_predicate(I.d, m, r[0]);
  w.set_predicate(I.c, m, r[1]);
}
void setp_packed(Lower& x) {
  const Operand& d = x.operand(0);
  if (d.kind != Operand::PAIR || d.parts.size() != 2) x.unsupported("expected two predicates");
  x.ins.d = x.predicate_to(d.parts[0]), x.ins.c = x.predicate_to(d.parts[1]);
  x.ins.a = x.from(1, x.type()), x.ins.b = x.from(2, x.type());
  x.ins.n = comparison(x), x.ins.flags = x.type()[0] == 'b';
  x.set(setp_lanes);
}

#define HALVES ".f16|f16x2|bf16|bf16x2"
#define COMPARISONS ".eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
const Row ROWS[] = {
    {"add ?rn ?ftz ?sat " HALVES, Class::FP16, 1, add},
    {"sub ?rn ?ftz ?sat " HALVES, Class::FP16, 1, sub},
    {"mul ?rn ?ftz ?sat " HALVES, Class::FP16, 1, mul},
    {"fma .rn ?ftz ?sat|relu " HALVES, Class::FP16, 1, fma_},
    {"max ?ftz ?NaN " HALVES, Class::FP16, 1, max_},
    {"min ?ftz ?NaN " HALVES, Class::FP16, 1, min_},
    {"neg ?ftz " HALVES, Class::FP16, 1, neg_abs},
    {"abs ?ftz " HALVES, Class::FP16, 1, neg_abs},
    {"ex2 .approx ?ftz " HALVES, Class::MUFU, 1, ex2, "libm, rounded to nearest"},
    {"tanh .approx " HALVES, Class::MUFU, 1, tanh_, "libm, rounded to nearest"},
    {"set " COMPARISONS " ?ftz .f16|bf16|f16x2|bf16x2|u16|s16|u32|s32 " HALVES, Class::FP16, 1, set_},
    {"setp " COMPARISONS " ?ftz .f16x2|bf16x2", Class::FP16, 1, setp_packed},
};
}  // namespace

extern const std::span<const Row> half_rows;
const std::span<const Row> half_rows{ROWS};
}  // namespace ptx

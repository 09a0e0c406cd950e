// fp32 and fp64 arithmetic. Rounding follows PTX: .rn is the host's default; .rz .rm .rp switch its rounding
// mode around the loop. The .approx functions stay within their documented errors: ex2 and lg2 have 2 ulp;
// rcp, rsqrt, sqrt and div are correctly rounded; sin, cos and tanh are those of libm. So their last bits may
// differ from a GPU's.
#include <cfenv>

#include "lanes.hpp"

namespace ptx {
namespace {

// 0.91 ulp measured. Bits are selected, not numbers: only so does it vectorise for AVX2.
inline float exp2_approx(float x) {
  const float c =
      bits<float>(select(x < -150.f, bits<u32>(-150.f), select(x > 129.f, bits<u32>(129.f), bits<u32>(x))));
  const float n = __builtin_rintf(c), f = c - n;
  float p = 1.535336188319500e-4f;
  p = __builtin_fmaf(p, f, 1.339887440266574e-3f);
  p = __builtin_fmaf(p, f, 9.618437357674640e-3f);
  p = __builtin_fmaf(p, f, 5.550332471162809e-2f);
  p = __builtin_fmaf(p, f, 2.402264791363012e-1f);
  p = __builtin_fmaf(p, f, 6.931472028550421e-1f);
  p = __builtin_fmaf(p, f, 1.f);
  const i32 e = static_cast<i32>(bits<float>(select(x == x, bits<u32>(n), 0u))), h = e >> 1;
  const float r =
      p * bits<float>(static_cast<u32>(h + 127) << 23) * bits<float>(static_cast<u32>(e - h + 127) << 23);
  return bits<float>(select(x != x, bits<u32>(x), select(x > 128.f, 0x7f800000u, bits<u32>(r))));
}

// Runs `inner` under another rounding mode. The compiler cannot look into the call, so nothing moves across
// it.
template <int MODE, Fn INNER>
[[gnu::noinline]] void rounded(Warp& w, const Ins& I, u32 m) {
  std::fesetround(MODE);
  INNER(w, I, m);
  std::fesetround(FE_TONEAREST);
}
template <class D, class A, class B, class C, auto F>
Handlers rounding(const Lower& x) {
  constexpr Fn full = lanes<D, A, B, C, F, true>, part = lanes<D, A, B, C, F, false>;
  if (x.has("rz") || x.has("rzi")) return {rounded<FE_TOWARDZERO, full>, rounded<FE_TOWARDZERO, part>};
  if (x.has("rm") || x.has("rmi")) return {rounded<FE_DOWNWARD, full>, rounded<FE_DOWNWARD, part>};
  if (x.has("rp") || x.has("rpi")) return {rounded<FE_UPWARD, full>, rounded<FE_UPWARD, part>};
  return {full, part};
}

void operands(Lower& x, const char* type, size_t n) {
  if (x.count() != n + 1) x.unsupported("expected " + std::to_string(n + 1) + " operands");
  x.ins.d = x.to(0, type);
  x.ins.a = x.from(1, type);
  if (n > 1) x.ins.b = x.from(2, type);
  if (n > 2) x.ins.c = x.from(3, type);
}

// NaN and -0 give +0, as an H200 has it.
inline float saturate(float v) { return v > 0.f ? (v > 1.f ? 1.f : v) : 0.f; }

// One fp32 expression with .ftz and .sat applied where the opcode has them.
#define FP32(EXPRESSION)                                                                                    \
  {                                                                                                         \
    const bool z = x.has("ftz"), s = x.has("sat");                                                          \
    if (s && z)                                                                                             \
      x.set(rounding<float, float, float, float,                                                            \
                     [](float a, [[maybe_unused]] float b, [[maybe_unused]] float c) {                      \
                       constexpr bool Z = true;                                                             \
                       a = ftz<Z>(a), b = ftz<Z>(b), c = ftz<Z>(c);                                         \
                       return saturate(ftz<Z>(EXPRESSION));                                                 \
                     }>(x));                                                                                \
    else if (s)                                                                                             \
      x.set(rounding<float, float, float, float,                                                            \
                     [](float a, [[maybe_unused]] float b, [[maybe_unused]] float c) {                      \
                       return saturate(EXPRESSION);                                                         \
                     }>(x));                                                                                \
    else if (z)                                                                                             \
      x.set(rounding<float, float, float, float,                                                            \
                     [](float a, [[maybe_unused]] float b, [[maybe_unused]] float c) {                      \
                       constexpr bool Z = true;                                                             \
                       a = ftz<Z>(a), b = ftz<Z>(b), c = ftz<Z>(c);                                         \
                       return ftz<Z>(EXPRESSION);                                                           \
                     }>(x));                                                                                \
    else                                                                                                    \
      x.set(                                                                                                \
          rounding<float, float, float, float,                                                              \
                   [](float a, [[maybe_unused]] float b, [[maybe_unused]] float c) { return EXPRESSION; }>( \
              x));                                                                                          \
  }
#define FP64(EXPRESSION)                                                                                     \
  x.set(rounding<double, double, double, double,                                                             \
                 [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c) { return EXPRESSION; }>( \
      x));

#define ARITHMETIC(NAME, N, E32, E64)      \
  void NAME(Lower& x) {                    \
    if (x.type() == "f64") {               \
      x.source.cls = Class::FP64;          \
      operands(x, "f64", N);               \
      FP64(E64)                            \
    } else {                               \
      operands(x, "f32", N);               \
      x.source.lane_flop = N == 3 ? 2 : 1; \
      FP32(E32)                            \
    }                                      \
  }
ARITHMETIC(add, 2, a + b, a + b)
ARITHMETIC(sub, 2, a - b, a - b)
ARITHMETIC(mul, 2, a* b, a* b)
ARITHMETIC(fma_, 3, __builtin_fmaf(a, b, c), __builtin_fma(a, b, c))
ARITHMETIC(div, 2, a / b, a / b)
ARITHMETIC(rcp, 1, 1.f / a, 1.0 / a)
ARITHMETIC(sqrt_, 1, __builtin_sqrtf(a), __builtin_sqrt(a))
#undef ARITHMETIC

inline double max_double(double a, double b) {
  return a != a ? b : b != b ? a : a > b ? a : b > a ? b : bits<double>(bits<u64>(a) & bits<u64>(b));
}
inline double min_double(double a, double b) {
  return a != a ? b : b != b ? a : a < b ? a : b < a ? b : bits<double>(bits<u64>(a) | bits<u64>(b));
}
inline float nan_or(float a, float b, float r) {
  return bits<float>(select((a != a) | (b != b), 0x7fffffffu, bits<u32>(r)));
}
inline float xorsign_abs(float a, float b, float r) {
  return bits<float>((bits<u32>(r) & 0x7fffffffu) | ((bits<u32>(a) ^ bits<u32>(b)) & 0x80000000u));
}
inline float magnitude(float a) { return bits<float>(bits<u32>(a) & 0x7fffffffu); }

void max_min(Lower& x) {
  const bool is_max = x.s.words[0] == "max";
  if (x.type() == "f64") {
    x.source.cls = Class::FP64;
    operands(x, "f64", 2);
    if (is_max) FP64(max_double(a, b)) else FP64(min_double(a, b)) return;
  }
  x.source.lane_flop = 1;
  if (x.count() == 4) {
    operands(x, "f32", 3);
    if (x.has("NaN")) {
      if (is_max) FP32(nan_or(nan_or(a, b, max_float(a, b)), c, max_float(max_float(a, b), c)))
      else FP32(nan_or(nan_or(a, b, min_float(a, b)), c, min_float(min_float(a, b), c)))
    } else {
      if (is_max) FP32(max_float(max_float(a, b), c)) else FP32(min_float(min_float(a, b), c))
    }
    return;
  }
  operands(x, "f32", 2);
  const bool nan = x.has("NaN");
  if (x.has("xorsign")) {
    if (nan) {
      if (is_max) FP32(nan_or(a, b, xorsign_abs(a, b, max_float(magnitude(a), magnitude(b)))))
      else FP32(nan_or(a, b, xorsign_abs(a, b, min_float(magnitude(a), magnitude(b)))))
    } else {
      if (is_max) FP32(xorsign_abs(a, b, max_float(magnitude(a), magnitude(b))))
      else FP32(xorsign_abs(a, b, min_float(magnitude(a), magnitude(b))))
    }
  } else if (nan) {
    if (is_max) FP32(nan_or(a, b, max_float(a, b))) else FP32(nan_or(a, b, min_float(a, b)))
  } else {
    if (is_max) FP32(max_float(a, b)) else FP32(min_float(a, b))
  }
}
void neg(Lower& x) {
  if (x.type() == "f64") {
    x.source.cls = Class::FP64;
    operands(x, "f64", 1);
    FP64(-a)
  } else {
    operands(x, "f32", 1);
    FP32(bits<float>(bits<u32>(a) ^ 0x80000000u))
  }
}
void abs_(Lower& x) {
  if (x.type() == "f64") {
    x.source.cls = Class::FP64;
    operands(x, "f64", 1);
    FP64(bits<double>(bits<u64>(a) & ~(u64(1) << 63)))
  } else {
    operands(x, "f32", 1);
    FP32(magnitude(a))
  }
}
void copysign_(Lower& x) {
  if (x.type() == "f64") {
    x.source.cls = Class::FP64;
    operands(x, "f64", 2);
    FP64(bits<double>((bits<u64>(a) & (u64(1) << 63)) | (bits<u64>(b) & ~(u64(1) << 63))))
  } else {
    operands(x, "f32", 2);
    FP32(bits<float>((bits<u32>(a) & 0x80000000u) | (bits<u32>(b) & 0x7fffffffu)))
  }
}

inline float rsqrt_exact(float a) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a))); }
void mufu(Lower& x) {
  const std::string& o = x.s.words[0];
  if (x.type() == "f64") {
    x.source.cls = Class::FP64;
    operands(x, "f64", 1);
    if (o == "rsqrt") FP64(1.0 / __builtin_sqrt(a))
    else FP64(1.0 / a)  // rcp.approx.ftz.f64 keeps 20 bits; more is allowed
    return;
  }
  operands(x, "f32", 1);
  x.source.exp2 = o == "ex2";
  if (o == "ex2") FP32(exp2_approx(a))
  else if (o == "lg2") FP32(std::log2(a))
  else if (o == "rsqrt") FP32(rsqrt_exact(a))
  else if (o == "sin") FP32(static_cast<float>(std::sin(static_cast<double>(a))))
  else if (o == "cos") FP32(static_cast<float>(std::cos(static_cast<double>(a))))
  else if (o == "tanh") FP32(static_cast<float>(std::tanh(static_cast<double>(a))))
  else if (o == "rcp") FP32(1.f / a)
  else FP32(__builtin_sqrtf(a))
}

template <class T>
void testp_lanes(Warp& w, const Ins& I, u32 m) {
  const T* a = reinterpret_cast<const T*>(w.registers + I.a);
  u32 r = 0;
  each_lane(m, [&](u32 l) {
    const int c = std::fpclassify(a[l]);
    const bool t = I.n == 0   ? c != FP_NAN && c != FP_INFINITE
                   : I.n == 1 ? c == FP_INFINITE
                   : I.n == 2 ? c != FP_NAN
                   : I.n == 3 ? c == FP_NAN
                   : I.n == 4 ? c == FP_NORMAL || c == FP_ZERO
                              : c == FP_SUBNORMAL;
    r |= static_cast<u32>(t) << l;
  });
  w.set_predicate(I.d, m, r);
}
void testp(Lower& x) {
  static const char* const kinds[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  for (u8 i = 0; i < 6; i++)
    if (x.word(1) == kinds[i]) x.ins.n = i;
  x.ins.d = x.predicate_to(x.operand(0));
  x.ins.a = x.from(1, x.type());
  x.set(x.type() == "f64" ? testp_lanes<double> : testp_lanes<float>);
}

const Row ROWS[] = {
    {"add ?rn|rz|rm|rp ?ftz ?sat .f32|f64", Class::FP32, 1, add},
    {"sub ?rn|rz|rm|rp ?ftz ?sat .f32|f64", Class::FP32, 1, sub},
    {"mul ?rn|rz|rm|rp ?ftz ?sat .f32|f64", Class::FP32, 1, mul},
    {"fma .rn|rz|rm|rp ?ftz ?sat .f32|f64", Class::FP32, 1, fma_},
    {"mad ?rn|rz|rm|rp ?ftz ?sat .f32|f64", Class::FP32, 1, fma_, "fused, as on every GPU since sm_20"},
    {"div .approx|full ?ftz .f32", Class::MUFU, 1, div, "correctly rounded"},
    {"div .rn|rz|rm|rp ?ftz .f32|f64", Class::FP32, 1, div},
    {"rcp .rn|rz|rm|rp ?ftz .f32|f64", Class::FP32, 1, rcp},
    {"sqrt .rn|rz|rm|rp ?ftz .f32|f64", Class::FP32, 1, sqrt_},
    {"rcp .approx ?ftz .f32|f64", Class::MUFU, 1, mufu, "correctly rounded"},
    {"sqrt .approx ?ftz .f32", Class::MUFU, 1, mufu, "correctly rounded"},
    {"rsqrt .approx ?ftz .f32|f64", Class::MUFU, 1, mufu, "correctly rounded"},
    {"ex2 .approx ?ftz .f32", Class::MUFU, 1, mufu, "0.91 ulp; the GPU's last bits may differ"},
    {"lg2 .approx ?ftz .f32", Class::MUFU, 1, mufu, "libm"},
    {"sin .approx ?ftz .f32", Class::MUFU, 1, mufu, "libm"},
    {"cos .approx ?ftz .f32", Class::MUFU, 1, mufu, "libm"},
    {"tanh .approx .f32", Class::MUFU, 1, mufu, "libm"},
    {"min ?ftz ?NaN ?xorsign ?abs .f32|f64", Class::FP32, 1, max_min},
    {"max ?ftz ?NaN ?xorsign ?abs .f32|f64", Class::FP32, 1, max_min},
    {"neg ?ftz .f32|f64", Class::FP32, 1, neg},
    {"abs ?ftz .f32|f64", Class::FP32, 1, abs_},
    {"copysign .f32|f64", Class::FP32, 1, copysign_},
    {"testp .finite|infinite|number|notanumber|normal|subnormal .f32|f64", Class::FP32, 1, testp},
};
}  // namespace

extern const std::span<const Row> float_rows;
const std::span<const Row> float_rows{ROWS};
}  // namespace ptx

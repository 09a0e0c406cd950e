// cvt and cvta. A conversion goes from the source through i64, u64 or double to the destination, with one
// rounding. The frequent ones have vectorised handlers of their own.
#include <cfenv>

#include "lanes.hpp"

namespace ptx {
namespace {

enum Kind : u8 { U8K, S8K, U16K, S16K, U32K, S32K, U64K, S64K, F16K, BF16K, F32K, F64K };
constexpr const char* KINDS[] = {"u8",  "s8",  "u16", "s16",  "u32", "s32",
                                 "u64", "s64", "f16", "bf16", "f32", "f64"};
enum Rounding : u8 { RN, RZ, RM, RP, RNA };

Kind kind_of(Lower& x, const std::string& t) {
  for (u8 i = 0; i < 12; i++)
    if (t == KINDS[i]) return static_cast<Kind>(i);
  x.unsupported("unsupported type ." + t);
}
bool is_float(Kind k) { return k >= F16K; }

double round_integral(double v, Rounding r) {
  switch (r) {
    case RZ: return std::trunc(v);
    case RM: return std::floor(v);
    case RP: return std::ceil(v);
    default: return std::nearbyint(v);
  }
}

// `v` rounded once to a float format with `mantissa` explicit bits and the least normal exponent `emin`, as a
// double.
double round_to(double v, int mantissa, int emin, Rounding r) {
  if (v == 0 || v != v || std::isinf(v)) return v;
  int e;
  std::frexp(v, &e);
  e = std::max(e - 1, emin);
  const double ulp = std::ldexp(1.0, e - mantissa);
  double scaled = v / ulp;
  if (r == RNA) {
    const double t = std::trunc(scaled);
    scaled = std::fabs(scaled - t) >= 0.5 ? t + std::copysign(1.0, v) : t;
  } else {
    scaled = round_integral(scaled, r);
  }
  const double out = scaled * ulp;
  return out == 0 ? std::copysign(0.0, v) : out;
}
double overflow(double v, double largest, Rounding r) {
  if (std::fabs(v) <= largest || v != v) return v;
  const bool to_largest = r == RZ || (r == RM && v > 0) || (r == RP && v < 0);
  return std::copysign(to_largest ? largest : INFINITY, v);
}
u32 to_half(double v, Rounding r) {
  return float_to_half(static_cast<float>(std::isinf(v) ? v : overflow(round_to(v, 10, -14, r), 65504.0, r)));
}
u32 to_bf16(double v, Rounding r) {
  return float_to_bf16(
      static_cast<float>(std::isinf(v) ? v : overflow(round_to(v, 7, -126, r), 0x1.fep127, r)));
}
float to_float(double v, Rounding r) {
  if (r == RN) return static_cast<float>(v);
  return static_cast<float>(std::isinf(v) ? v : overflow(round_to(v, 23, -126, r), 0x1.fffffep127, r));
}
u32 to_tf32(float f, Rounding r) {
  if (f != f) return 0x7fffffffu;
  if (std::isinf(f)) return bits<u32>(f);
  return bits<u32>(static_cast<float>(overflow(round_to(f, 10, -126, r), 0x1.ffcp127, r)));
}

// fp8: 4 or 5 exponent bits. It saturates to the largest finite value: PTX has only that form (.satfinite).
u32 to_fp8(float f, bool e5m2) {
  if (f != f) return 0x7f;
  const int m = e5m2 ? 2 : 3, emin = e5m2 ? -14 : -6;
  const double largest = e5m2 ? 57344.0 : 448.0;
  const u32 sign = bits<u32>(f) >> 24 & 0x80;
  double v = std::fabs(round_to(f, m, emin, RN));
  if (v > largest) v = largest;
  if (v == 0) return sign;
  int e;
  std::frexp(v, &e);
  e = std::max(e - 1, emin);
  const u32 scaled = static_cast<u32>(std::ldexp(v, m - e));  // 1.m as integer, or 0.m for subnormals
  const u32 biased = scaled >> m ? static_cast<u32>(e - emin + 1) : 0;
  return sign | biased << m | (scaled & ((1u << m) - 1));
}
float from_fp8(u32 b, bool e5m2) {
  const int m = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const u32 e = (b & 0x7f) >> m, f = b & ((1u << m) - 1);
  double v;
  if (e5m2 && e == 31) v = f ? NAN : INFINITY;
  else if (!e5m2 && (b & 0x7f) == 0x7f) v = NAN;
  else v = e ? std::ldexp((1 << m) + f, static_cast<int>(e) - bias - m) : std::ldexp(f, 1 - bias - m);
  return static_cast<float>(b & 0x80 ? -v : v);
}

struct How {
  Kind to, from;
  Rounding r;
  bool sat, ftz, integral, relu, source_wide, target_wide;
};
How unpack(u32 imm, u8 flags) {
  return {static_cast<Kind>(imm & 15),
          static_cast<Kind>(imm >> 4 & 15),
          static_cast<Rounding>(imm >> 8 & 7),
          (flags & 1) != 0,
          (flags & 2) != 0,
          (flags & 4) != 0,
          (flags & 8) != 0,
          (flags & 16) != 0,
          (flags & 32) != 0};
}

u64 clamp_signed(i64 v, int width, bool to_signed) {
  const i64 lo = to_signed ? (width == 64 ? INT64_MIN : -(i64(1) << (width - 1))) : 0;
  const i64 hi = width == 64 ? INT64_MAX : to_signed ? (i64(1) << (width - 1)) - 1 : (i64(1) << width) - 1;
  return static_cast<u64>(v < lo ? lo : v > hi ? hi : v);
}
u64 clamp_unsigned(u64 v, int width, bool to_signed) {
  const u64 hi = to_signed ? (u64(1) << (width - 1)) - 1 : width == 64 ? ~u64(0) : (u64(1) << width) - 1;
  return v > hi ? hi : v;
}
u64 double_to_int(double v, int width, bool is_signed, bool from_f64) {
  // PTX ISA, cvt: NaN is the top bit alone where either side has 64 bits
  if (v != v) return width == 64 || from_f64 ? u64(1) << (width - 1) : 0;
  const double lo = is_signed ? -std::ldexp(1.0, width - 1) : 0,
               hi = std::ldexp(1.0, is_signed ? width - 1 : width);
  if (v <= lo) return is_signed ? static_cast<u64>(width == 64 ? INT64_MIN : -(i64(1) << (width - 1))) : 0;
  if (v >= hi) return is_signed ? (u64(1) << (width - 1)) - 1 : width == 64 ? ~u64(0) : (u64(1) << width) - 1;
  return is_signed ? static_cast<u64>(static_cast<i64>(v)) : static_cast<u64>(v);
}

u64 convert(u64 raw, const How& h) {
  const bool to_signed = h.to < F16K && (h.to & 1);
  const int to_width = h.to >= F16K ? 0 : 8 << (h.to >> 1);
  if (!is_float(h.from)) {
    const int from_width = 8 << (h.from >> 1);
    const bool from_signed = h.from & 1;
    const u64 mask = from_width == 64 ? ~u64(0) : (u64(1) << from_width) - 1;
    const u64 u = raw & mask;
    const i64 s = static_cast<i64>(u << (64 - from_width)) >> (64 - from_width);
    if (!is_float(h.to)) {
      if (h.sat)
        return from_signed ? clamp_signed(s, to_width, to_signed) : clamp_unsigned(u, to_width, to_signed);
      return from_signed ? static_cast<u64>(s) : u;
    }
    if (from_width == 64 && h.to == F64K) {
      static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
      std::fesetround(modes[h.r & 3]);
      volatile double d = from_signed ? static_cast<double>(s) : static_cast<double>(u);
      std::fesetround(FE_TONEAREST);
      return bits<u64>(static_cast<double>(d));
    }
    if (from_width == 64) {  // to 32 bits or fewer: round once, through a value rounded to odd
      const bool minus = from_signed && s < 0;
      u64 a = minus ? 0 - static_cast<u64>(s) : u;
      int shift = 64 - std::countl_zero(a) - 50;
      double d = static_cast<double>(a);
      if (shift > 0) {
        const bool sticky = a & ((u64(1) << shift) - 1);
        d = std::ldexp(static_cast<double>(a >> shift | (sticky ? 1 : 0)), shift);
      }
      if (minus) d = -d;
      if (h.to == F32K) return bits<u32>(to_float(d, h.r));
      return h.to == F16K ? to_half(d, h.r) : to_bf16(d, h.r);
    }
    const double d = from_signed ? static_cast<double>(s) : static_cast<double>(u);
    if (h.to == F64K) return bits<u64>(d);
    if (h.to == F32K) return bits<u32>(to_float(d, h.r));
    return h.to == F16K ? to_half(d, h.r) : to_bf16(d, h.r);
  }
  double v = h.from == F64K   ? bits<double>(raw)
             : h.from == F32K ? static_cast<double>(h.ftz ? flush(bits<float>(static_cast<u32>(raw)))
                                                          : bits<float>(static_cast<u32>(raw)))
             : h.from == F16K ? half_to_float(static_cast<u32>(raw) & 0xffff)
                              : bf16_to_float(static_cast<u32>(raw) & 0xffff);
  if (!is_float(h.to)) return double_to_int(round_integral(v, h.r), to_width, to_signed, h.from == F64K);
  if (h.integral) v = std::copysign(round_integral(v, h.r), v);
  const Rounding r = h.integral ? RN : h.r;
  if (h.sat) v = v > 0 ? (v > 1 ? 1 : v) : 0;  // NaN and -0 give +0, as an H200 has it
  if (h.relu && v < 0) v = 0;
  if (h.to == F64K) return bits<u64>(v);
  if (h.to == F32K) {
    const float f = to_float(v, r);
    return bits<u32>(h.ftz ? flush(f) : f);
  }
  return h.to == F16K ? to_half(v, r) : to_bf16(v, r);
}

void convert_lanes(Warp& w, const Ins& I, u32 m) {
  const How h = unpack(static_cast<u32>(I.imm), I.flags);
  const u64 keep = h.target_wide ? ~u64(0) : I.n == 16 ? 0xffffu : FULL;
  each_lane(m, [&](u32 l) {
    const u64 v = convert(h.source_wide ? w.w(I.a)[l] : w.u(I.a)[l], h);
    if (h.target_wide) w.w(I.d)[l] = v;
    else w.u(I.d)[l] = static_cast<u32>(v & keep);
  });
}

Rounding rounding(Lower& x) {
  if (x.has("rz") || x.has("rzi")) return RZ;
  if (x.has("rm") || x.has("rmi")) return RM;
  if (x.has("rp") || x.has("rpi")) return RP;
  if (x.has("rna")) return RNA;
  return RN;
}

void cvt(Lower& x) {
  const std::string &from = x.type(), &to = x.word(x.s.words.size() - 2);
  const Kind kt = kind_of(x, to), kf = kind_of(x, from);
  const Rounding r = rounding(x);
  const bool sat = x.has("sat"), z = x.has("ftz"), relu = x.has("relu");
  // The registers may be wider than the types.
  const Operand &d = x.operand(0), &a = x.operand(1);
  const u32 have_d = x.width(d), have_a = x.width(a);
  const bool wide_d = have_d == 64, wide_a = have_a == 64;
  x.ins.d = x.to(d, wide_d ? "b64" : have_d == 16 ? "b16" : "b32");
  x.ins.a = a.kind == Operand::REG ? x.to(a, wide_a ? "b64" : "b32") : x.from(a, from);
  const bool source_wide = a.kind == Operand::REG ? wide_a : width_of(from) == 64;
  x.ins.imm = static_cast<i32>(static_cast<u32>(kt) | static_cast<u32>(kf) << 4 | static_cast<u32>(r) << 8);
  const bool integral = x.has("rni") || x.has("rzi") || x.has("rmi") || x.has("rpi");
  x.ins.flags = static_cast<u8>((sat ? 1 : 0) | (z ? 2 : 0) | (integral ? 4 : 0) | (relu ? 8 : 0) |
                                (source_wide ? 16 : 0) | (wide_d ? 32 : 0));
  x.ins.n = static_cast<u8>(have_d == 16 ? 16 : 32);
  x.set(convert_lanes);
  if (sat || relu || (z && kf != F32K)) return;
  // Frequent conversions between registers of the types' own widths.
  const bool plain = !wide_d == (width_of(to) < 64) && source_wide == (width_of(from) == 64);
  if (!plain) return;
  const bool d16 = have_d == 16;
  if (!is_float(kt) && !is_float(kf)) {
    if (width_of(to) == 64 && kf == S32K) x.set(op<i64, i32, u32, u32, LANES(i64(a))>());
    else if (width_of(to) == 64 && kf == U32K) x.set(op<u64, u32, u32, u32, LANES(u64(a))>());
    else if (width_of(to) == 32 && width_of(from) == 64) x.set(op<u32, u64, u32, u32, LANES(u32(a))>());
    else if (width_of(to) == 32 && width_of(from) == 32) x.set(op<u32, u32, u32, u32, LANES(a)>());
    else if (width_of(to) == 16 && width_of(from) == 32) x.set(op<u32, u32, u32, u32, LANES(u32(u16(a)))>());
    else if (width_of(to) == 32 && kf == U16K) x.set(op<u32, u32, u32, u32, LANES(u32(u16(a)))>());
    else if (width_of(to) == 32 && kf == S16K) x.set(op<u32, u32, u32, u32, LANES(u32(i32(i16(u16(a)))))>());
    else if (width_of(to) == 32 && kf == U8K) x.set(op<u32, u32, u32, u32, LANES(u32(u8(a)))>());
  } else if (r == RN && !integral) {
    if (kt == F32K && kf == S32K) x.set(op<float, i32, u32, u32, LANES(float(a))>());
    else if (kt == F32K && kf == U32K) x.set(op<float, u32, u32, u32, LANES(float(a))>());
    else if (kt == F32K && kf == F16K && !d16)
      x.set(op<float, u32, u32, u32, LANES(half_to_float(a & 0xffff))>());
    else if (kt == F32K && kf == BF16K) x.set(op<float, u32, u32, u32, LANES(bf16_to_float(a & 0xffff))>());
    else if (kt == F16K && kf == F32K)
      z ? x.set(op<u32, float, u32, u32, LANES(float_to_half(flush(a)))>())
        : x.set(op<u32, float, u32, u32, LANES(float_to_half(a))>());
    else if (kt == BF16K && kf == F32K) x.set(op<u32, float, u32, u32, LANES(float_to_bf16(a))>());
    else if (kt == F64K && kf == F32K && !z) x.set(op<double, float, u32, u32, LANES(double(a))>());
    else if (kt == F32K && kf == F64K && !z) x.set(op<float, double, u32, u32, LANES(float(a))>());
  }
}

inline float relu(float v) { return v < 0 ? 0.f : v; }
template <int R>
u32 half_rounded(float f) {
  return to_half(f, static_cast<Rounding>(R));
}
template <int R>
u32 bf16_rounded(float f) {
  return to_bf16(f, static_cast<Rounding>(R));
}
void cvt_pack(Lower& x) {  // d.hi = a, d.lo = b
  const std::string& to = x.word(x.s.words.size() - 2);
  x.ins.d = x.to(0, "b32"), x.ins.a = x.from(1, "f32"), x.ins.b = x.from(2, "f32");
  const bool half = to == "f16x2", rl = x.has("relu"), rz = x.has("rz");
  if (rz) {
    if (half)
      rl ? x.set(op<u32, float, float, u32,
                    LANES(half_rounded<RZ>(relu(a)) << 16 | half_rounded<RZ>(relu(b)))>())
         : x.set(op<u32, float, float, u32, LANES(half_rounded<RZ>(a) << 16 | half_rounded<RZ>(b))>());
    else
      rl ? x.set(op<u32, float, float, u32,
                    LANES(bf16_rounded<RZ>(relu(a)) << 16 | bf16_rounded<RZ>(relu(b)))>())
         : x.set(op<u32, float, float, u32, LANES(bf16_rounded<RZ>(a) << 16 | bf16_rounded<RZ>(b))>());
  } else {
    if (half)
      rl ? x.set(op<u32, float, float, u32, LANES(float_to_half(relu(a)) << 16 | float_to_half(relu(b)))>())
         : x.set(op<u32, float, float, u32, LANES(float_to_half(a) << 16 | float_to_half(b))>());
    else
      rl ? x.set(op<u32, float, float, u32, LANES(float_to_bf16(relu(a)) << 16 | float_to_bf16(relu(b)))>())
         : x.set(op<u32, float, float, u32, LANES(float_to_bf16(a) << 16 | float_to_bf16(b))>());
  }
}
void cvt_tf32(Lower& x) {
  x.ins.d = x.to(0, "b32"), x.ins.a = x.from(1, "f32");
  const bool rl = x.has("relu");
  if (x.has("rna")) x.set(op<u32, float, u32, u32, LANES(to_tf32(a, RNA))>());
  else if (x.has("rz")) x.set(op<u32, float, u32, u32, LANES(to_tf32(a, RZ))>());
  else if (rl) x.set(op<u32, float, u32, u32, LANES(to_tf32(relu(a), RN))>());
  else x.set(op<u32, float, u32, u32, LANES(to_tf32(a, RN))>());
}
void cvt_to_fp8(Lower& x) {
  const bool e5 = x.has("e5m2x2"), rl = x.has("relu");
  x.ins.d = x.to(0, "b16");
  if (x.type() == "f32") {
    x.ins.a = x.from(1, "f32"), x.ins.b = x.from(2, "f32");
    if (e5)
      rl ? x.set(op<u32, float, float, u32, LANES(to_fp8(relu(a), true) << 8 | to_fp8(relu(b), true))>())
         : x.set(op<u32, float, float, u32, LANES(to_fp8(a, true) << 8 | to_fp8(b, true))>());
    else
      rl ? x.set(op<u32, float, float, u32, LANES(to_fp8(relu(a), false) << 8 | to_fp8(relu(b), false))>())
         : x.set(op<u32, float, float, u32, LANES(to_fp8(a, false) << 8 | to_fp8(b, false))>());
  } else {
    if (rl) x.unsupported("relu");
    x.ins.a = x.from(1, "f16x2");
    e5 ? x.set(
             op<u32, u32, u32, u32,
                LANES(to_fp8(half_to_float(a >> 16), true) << 8 | to_fp8(half_to_float(a & 0xffff), true))>())
       : x.set(op<u32, u32, u32, u32,
                  LANES(to_fp8(half_to_float(a >> 16), false) << 8 |
                        to_fp8(half_to_float(a & 0xffff), false))>());
  }
}
void cvt_from_fp8(Lower& x) {
  x.ins.d = x.to(0, "f16x2"), x.ins.a = x.from(1, "b16");
  x.has("e5m2x2") ? x.set(op<u32, u32, u32, u32,
                             LANES(float_to_half(from_fp8(a >> 8 & 255, true)) << 16 |
                                   float_to_half(from_fp8(a & 255, true)))>())
                  : x.set(op<u32, u32, u32, u32,
                             LANES(float_to_half(from_fp8(a >> 8 & 255, false)) << 16 |
                                   float_to_half(from_fp8(a & 255, false)))>());
}
u32 saturate_pack(i32 v, int width, bool is_signed) {
  return static_cast<u32>(clamp_signed(v, width, is_signed)) & ((1u << width) - 1);
}
// cvt.pack.sat.{u8,s8,u16,s16}.s32.b32 d, a, b, c. With 8 bits the lower bytes of c fill the upper half.
void cvt_pack_int(Lower& x) {
  const std::string& to = x.word(3);
  x.ins.d = x.to(0, "b32"), x.ins.a = x.from(1, "s32"), x.ins.b = x.from(2, "s32");
  if (x.count() > 3) x.ins.c = x.from(3, "b32");
  if (to == "u16")
    x.set(op<u32, i32, i32, u32, LANES(saturate_pack(a, 16, false) << 16 | saturate_pack(b, 16, false))>());
  else if (to == "s16")
    x.set(op<u32, i32, i32, u32, LANES(saturate_pack(a, 16, true) << 16 | saturate_pack(b, 16, true))>());
  else if (to == "u8")
    x.set(op<u32, i32, i32, u32,
             LANES(c << 16 | saturate_pack(a, 8, false) << 8 | saturate_pack(b, 8, false))>());
  else
    x.set(op<u32, i32, i32, u32,
             LANES(c << 16 | saturate_pack(a, 8, true) << 8 | saturate_pack(b, 8, true))>());
}

// Generic addresses: global, const and param memory have host addresses already. Shared and local memory have
// windows.
void cvta(Lower& x) {
  const bool to = x.has("to"), shared = x.has("shared") || x.has("shared::cta") || x.has("shared::cluster"),
             local = x.has("local");
  if (width_of(x.type()) != 64) x.unsupported("32-bit generic addresses");
  x.ins.d = x.to(0, "u64"), x.ins.a = x.from(1, "u64");
  if (to) {
    if (shared) x.set(op<u64, u64, u64, u64, LANES(u64(u32(a)))>());
    else if (local) x.set(op<u64, u64, u64, u64, LANES(a & ~WINDOW_MASK)>());
    else x.set(op<u64, u64, u64, u64, LANES(a)>());
  } else {
    if (shared) x.set(op<u64, u64, u64, u64, LANES(SHARED_WINDOW | u32(a))>());
    else if (local) x.set(op<u64, u64, u64, u64, LANES(LOCAL_WINDOW | u32(a))>());
    else x.set(op<u64, u64, u64, u64, LANES(a)>());
  }
}

#define PLAIN ".u8|s8|u16|s16|u32|s32|u64|s64|f16|bf16|f32|f64"
const Row ROWS[] = {
    {"cvt ?rn|rz|rm|rp|rna|rni|rzi|rmi|rpi ?ftz ?relu ?sat " PLAIN " " PLAIN, Class::CONVERT, 1, cvt},
    {"cvt .rn|rz ?relu ?satfinite .f16x2|bf16x2 .f32", Class::CONVERT, 1, cvt_pack},
    {"cvt .rna|rn|rz ?relu ?satfinite .tf32 .f32", Class::CONVERT, 1, cvt_tf32},
    {"cvt .rn .satfinite ?relu .e4m3x2|e5m2x2 .f32|f16x2", Class::CONVERT, 1, cvt_to_fp8},
    {"cvt .rn ?relu .f16x2 .e4m3x2|e5m2x2", Class::CONVERT, 1, cvt_from_fp8},
    {"cvt .pack .sat .u8|s8|u16|s16 .s32 ?b32", Class::CONVERT, 1, cvt_pack_int},
    {"cvta ?to .global|shared|shared::cta|shared::cluster|local|const|param .u64|u32", Class::INT, 1, cvta},
};
}  // namespace

extern const std::span<const Row> convert_rows;
const std::span<const Row> convert_rows{ROWS};
}  // namespace ptx

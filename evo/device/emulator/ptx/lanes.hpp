// Lane-wise handlers: one C++ expression over 32 lanes, in a form that compilers vectorise.
#pragma once
#include <cmath>

#include "lower.hpp"
#include "machine.hpp"

namespace ptx {

// The slot of a value of type T. 16-bit values lie zero-extended in 32-bit slots, so results are cut to the
// width of T.
template <class T>
using slot_t = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <class D, class A, class B, class C, auto F, bool ALL>
void lanes(Warp& w, const Ins& I, u32 m) {
  D* d = reinterpret_cast<D*>(w.registers + I.d);
  const A* a = reinterpret_cast<const A*>(w.registers + I.a);
  const B* b = reinterpret_cast<const B*>(w.registers + I.b);
  const C* c = reinterpret_cast<const C*>(w.registers + I.c);
#pragma GCC ivdep  // slots are equal or disjoint, never shifted
  for (int l = 0; l < 32; l++)
    if (ALL || (m >> l & 1)) d[l] = F(a[l], b[l], c[l]);
}

// d = F(a, b, c) with the register types given.
template <class D, class A, class B, class C, auto F>
Handlers op() {
  return {lanes<D, A, B, C, F, true>, lanes<D, A, B, C, F, false>};
}

template <class A, auto F>
u32 compare_lanes(const Warp& w, u32 sa, u32 sb) {
  const A* a = reinterpret_cast<const A*>(w.registers + sa);
  const A* b = reinterpret_cast<const A*>(w.registers + sb);
  u32 r = 0;
#pragma GCC ivdep
  for (int l = 0; l < 32; l++) r |= static_cast<u32>(F(a[l], b[l])) << l;
  return r;
}

#define LANES(x) [](auto a, [[maybe_unused]] auto b, [[maybe_unused]] auto c) { return (x); }

inline u32 select(bool c, u32 x, u32 y) {  // branch-free, keeps the loops vectorisable
  const u32 k = 0u - static_cast<u32>(c);
  return (x & k) | (y & ~k);
}

// ---- 16-bit floats, branch-free
inline float half_to_float(u32 h) {
  const u32 mag = h & 0x7fffu, sign = (h & 0x8000u) << 16;
  const float scaled = bits<float>(mag << 13) * 0x1p112f;  // also right for subnormals
  const u32 special = bits<u32>(scaled) | 0x7f800000u;     // inf and NaN keep their mantissa
  return bits<float>(select(mag >= 0x7c00u, special, bits<u32>(scaled)) | sign);
}
inline u32 float_to_half(float f) {  // round to nearest even
  const u32 u = bits<u32>(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
  const u32 normal = (mag + 0xc8000fffu + (mag >> 13 & 1)) >> 13;  // rebias by -112 and round
  const u32 tiny = bits<u32>(bits<float>(mag) + 0.5f) - 0x3f000000u;
  u32 r = select(mag < 0x38800000u, tiny, normal);
  // Too large gives infinity. Values that round up to infinity are right without this.
  r = select(mag >= 0x47800000u, 0x7c00u, r);
  r = select(mag > 0x7f800000u, 0x7fffu, r);
  return select(mag > 0x7f800000u, 0x7fffu, r | sign);
}
inline float bf16_to_float(u32 h) { return bits<float>(h << 16); }
inline u32 float_to_bf16(float f) {
  const u32 u = bits<u32>(f);
  return select((u & 0x7fffffffu) > 0x7f800000u, 0x7fffu, (u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// `x` rounded to odd. That keeps enough bits for one more rounding, to half the precision, to be exact.
inline float odd_float(double x) {
  const float f = static_cast<float>(x);
  if (static_cast<double>(f) == x || f != f || std::isinf(f)) return f;
  u32 u = bits<u32>(f);
  if (f == 0) return bits<float>(x < 0 ? 0x80000001u : 1u);
  if (u & 1) return f;
  const bool away = (static_cast<double>(f) > x) == (f > 0);
  u = away ? u - 1 : u + 1;
  return bits<float>(u);
}
inline double odd_fma(double a, double b, double c) {  // a*b must be exact in double
  const double p = a * b, s = p + c;
  if (!(std::fabs(s) <= 1.7e308)) return s;
  const double t = s - p, error = (p - (s - t)) + (c - t);
  if (error == 0) return s;
  u64 u = bits<u64>(s);
  if (u & 1) return s;
  return bits<double>((error > 0) == (s > 0) ? u + 1 : u - 1);
}

inline float flush(float x) {
  const u32 u = bits<u32>(x);
  return bits<float>((u & 0x7f800000u) ? u : u & 0x80000000u);
}
template <bool Z>
inline float ftz(float x) {
  if constexpr (Z) return flush(x);
  else return x;
}

inline float max_float(float a, float b) {
  const u32 x = bits<u32>(a), y = bits<u32>(b), r = select(a > b, x, select(b > a, y, x & y));
  return bits<float>(select(a != a, select(b != b, 0x7fffffffu, y), select(b != b, x, r)));
}
inline float min_float(float a, float b) {
  const u32 x = bits<u32>(a), y = bits<u32>(b), r = select(a < b, x, select(b < a, y, x | y));
  return bits<float>(select(a != a, select(b != b, 0x7fffffffu, y), select(b != b, x, r)));
}

}  // namespace ptx

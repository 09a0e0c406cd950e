#include "tensor.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "lanes.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ptx {
namespace {

inline float widen(Element e, u32 h) { return e == Element::BF16 ? bf16_to_float(h) : half_to_float(h); }

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
// Nothing is unpacked to matrices. Lane l = 4g + t holds rows g and g + 8. A[g][2t' + e] is a broadcast
// within each group of four lanes (permute_ps). B[k][2t + j] is a two-source permute that all g share.
constexpr const char* PATH = "avx512";
struct Pairs {
  __m512 v[2][2];  // [low or high element][lanes 0-15 or 16-31]
};
template <bool BF>
inline Pairs widen_pairs(const u32* r) {
  Pairs o;
  for (int h = 0; h < 2; h++) {
    const __m512i x = _mm512_loadu_si512(r + 16 * h);
    if (BF) {
      o.v[0][h] = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
      o.v[1][h] = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    } else {
      o.v[0][h] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
      o.v[1][h] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
    }
  }
  return o;
}
template <int T>
inline void step(const Pairs (&a)[4], const Pairs (&b)[2], __m512 (&c)[4][2]) {
  const __m512i i0 = _mm512_add_epi32(
      _mm512_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24), _mm512_set1_epi32(T));
  const __m512i i1 = _mm512_add_epi32(i0, _mm512_set1_epi32(4));
  for (int kh = 0; kh < 2; kh++)
    for (int e = 0; e < 2; e++) {
      const __m512 b0 = _mm512_permutex2var_ps(b[kh].v[e][0], i0, b[kh].v[e][1]),
                   b1 = _mm512_permutex2var_ps(b[kh].v[e][0], i1, b[kh].v[e][1]);
      for (int h = 0; h < 2; h++) {
        const __m512 x = _mm512_permute_ps(a[2 * kh].v[e][h], T * 0x55),
                     y = _mm512_permute_ps(a[2 * kh + 1].v[e][h], T * 0x55);
        c[0][h] = _mm512_fmadd_ps(x, b0, c[0][h]);
        c[1][h] = _mm512_fmadd_ps(x, b1, c[1][h]);
        c[2][h] = _mm512_fmadd_ps(y, b0, c[2][h]);
        c[3][h] = _mm512_fmadd_ps(y, b1, c[3][h]);
      }
    }
}
template <bool BF>
void mma(const u32* const* ar, const u32* const* br, float (*cr)[32]) {
  Pairs a[4];
  const Pairs b[2] = {widen_pairs<BF>(br[0]), widen_pairs<BF>(br[1])};
  __m512 c[4][2];
  for (int i = 0; i < 4; i++) {
    a[i] = widen_pairs<BF>(ar[i]);
    for (int h = 0; h < 2; h++) c[i][h] = _mm512_loadu_ps(cr[i] + 16 * h);
  }
  step<0>(a, b, c), step<1>(a, b, c), step<2>(a, b, c), step<3>(a, b, c);
  for (int i = 0; i < 4; i++)
    for (int h = 0; h < 2; h++) _mm512_storeu_ps(cr[i] + 16 * h, c[i][h]);
}
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
// The same, in the same order, by eight lanes: two rows. B[k][2t + j] for all t is a row of a block of four
// by four that is transposed.
constexpr const char* PATH = "avx2";
struct Pairs {
  __m256 v[2][4];  // [low or high element][lanes 8h to 8h + 7]
};
template <bool BF>
inline Pairs widen_pairs(const u32* r) {
  Pairs o;
  __m256i x[4];
  for (int h = 0; h < 4; h++) x[h] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(r + 8 * h));
  if (BF) {
    for (int h = 0; h < 4; h++) {
      o.v[0][h] = _mm256_castsi256_ps(_mm256_slli_epi32(x[h], 16));
      o.v[1][h] =
          _mm256_castsi256_ps(_mm256_and_si256(x[h], _mm256_set1_epi32(static_cast<int>(0xffff0000))));
    }
    return o;
  }
  const __m256i low = _mm256_set1_epi32(0xffff);
  for (int h = 0; h < 4; h += 2)
    for (int e = 0; e < 2; e++) {
      const __m256i p = e ? _mm256_srli_epi32(x[h], 16) : _mm256_and_si256(x[h], low);
      const __m256i q = e ? _mm256_srli_epi32(x[h + 1], 16) : _mm256_and_si256(x[h + 1], low);
      const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(p, q), 0xd8);
      o.v[e][h] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
      o.v[e][h + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    }
  return o;
}
struct Columns {
  __m256 v[4][2];  // [t'][j]: B[2t' + e][2t + j] for all t, twice
};
inline Columns columns_of(const __m256 (&b)[4]) {
  const __m256 p = _mm256_unpacklo_ps(b[0], b[1]), q = _mm256_unpackhi_ps(b[0], b[1]);
  const __m256 r = _mm256_unpacklo_ps(b[2], b[3]), s = _mm256_unpackhi_ps(b[2], b[3]);
  const __m256 both[4] = {_mm256_shuffle_ps(p, r, 0x44), _mm256_shuffle_ps(p, r, 0xee),
                          _mm256_shuffle_ps(q, s, 0x44), _mm256_shuffle_ps(q, s, 0xee)};
  Columns o;
  for (int t = 0; t < 4; t++) {
    o.v[t][0] = _mm256_permute2f128_ps(both[t], both[t], 0x00);
    o.v[t][1] = _mm256_permute2f128_ps(both[t], both[t], 0x11);
  }
  return o;
}
// Four rows at once: eight sums that do not wait for each other.
template <int T>
inline void step(const Pairs (&a)[4], const Columns (&b)[2][2], int h, __m256 (&c)[4][2]) {
  for (int kh = 0; kh < 2; kh++)
    for (int e = 0; e < 2; e++) {
      const __m256 b0 = b[kh][e].v[T][0], b1 = b[kh][e].v[T][1];
      for (int i = 0; i < 2; i++) {
        const __m256 x = _mm256_permute_ps(a[2 * kh].v[e][h + i], T * 0x55),
                     y = _mm256_permute_ps(a[2 * kh + 1].v[e][h + i], T * 0x55);
        c[0][i] = _mm256_fmadd_ps(x, b0, c[0][i]);
        c[1][i] = _mm256_fmadd_ps(x, b1, c[1][i]);
        c[2][i] = _mm256_fmadd_ps(y, b0, c[2][i]);
        c[3][i] = _mm256_fmadd_ps(y, b1, c[3][i]);
      }
    }
}
template <bool BF>
void mma(const u32* const* ar, const u32* const* br, float (*cr)[32]) {
  Pairs a[4];
  Columns b[2][2];
  for (int i = 0; i < 4; i++) a[i] = widen_pairs<BF>(ar[i]);
  for (int kh = 0; kh < 2; kh++) {
    const Pairs wide = widen_pairs<BF>(br[kh]);
    for (int e = 0; e < 2; e++) b[kh][e] = columns_of(wide.v[e]);
  }
  for (int h = 0; h < 4; h += 2) {
    __m256 c[4][2];
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 2; k++) c[i][k] = _mm256_loadu_ps(cr[i] + 8 * (h + k));
    step<0>(a, b, h, c), step<1>(a, b, h, c), step<2>(a, b, h, c), step<3>(a, b, h, c);
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 2; k++) _mm256_storeu_ps(cr[i] + 8 * (h + k), c[i][k]);
  }
}
#else
constexpr const char* PATH = "portable";
// Through matrices. The inner loop over 8 columns vectorises.
template <bool BF>
void mma(const u32* const* ar, const u32* const* br, float (*cr)[32]) {
  constexpr Element E = BF ? Element::BF16 : Element::F16;
  alignas(64) float wide[6][2][32];
  for (int i = 0; i < 4; i++)
    for (int s = 0; s < 2; s++)
      for (int l = 0; l < 32; l++) wide[i][s][l] = widen(E, ar[i][l] >> (16 * s) & 0xffff);
  for (int i = 0; i < 2; i++)
    for (int s = 0; s < 2; s++)
      for (int l = 0; l < 32; l++) wide[4 + i][s][l] = widen(E, br[i][l] >> (16 * s) & 0xffff);
  alignas(64) float b[16][8];
  for (int i = 0; i < 2; i++)
    for (int s = 0; s < 2; s++)
      for (int l = 0; l < 32; l++) b[2 * (l & 3) + s + 8 * i][l >> 2] = wide[4 + i][s][l];
  for (int g = 0; g < 8; g++) {
    alignas(32) float c[2][8];
    for (int t = 0; t < 4; t++)
      for (int j = 0; j < 2; j++) c[0][2 * t + j] = cr[j][4 * g + t], c[1][2 * t + j] = cr[2 + j][4 * g + t];
    for (int half = 0; half < 2; half++)
      for (int t = 0; t < 4; t++)
        for (int s = 0; s < 2; s++) {
          const int k = 2 * t + s + 8 * half;
          const float x = wide[2 * half][s][4 * g + t], y = wide[2 * half + 1][s][4 * g + t];
          for (int n = 0; n < 8; n++) c[0][n] = __builtin_fmaf(x, b[k][n], c[0][n]);
          for (int n = 0; n < 8; n++) c[1][n] = __builtin_fmaf(y, b[k][n], c[1][n]);
        }
    for (int t = 0; t < 4; t++)
      for (int j = 0; j < 2; j++) cr[j][4 * g + t] = c[0][2 * t + j], cr[2 + j][4 * g + t] = c[1][2 * t + j];
  }
}
#endif

}  // namespace

TensorType type_of(std::string_view t) {
  if (t == "f16") return F16;
  if (t == "bf16") return BF16;
  if (t == "tf32") return TF32;
  if (t == "s8") return S8;
  if (t == "u8") return U8T;
  if (t == "e4m3") return E4M3;
  if (t == "e5m2") return E5M2;
  if (t == "f32") return F32;
  if (t == "s32") return S32;
  if (t == "f64") return F64;
  return NONE;
}
u32 element_bits(TensorType t) {
  return t == F16 || t == BF16 ? 16 : t == TF32 || t == F32 || t == S32 ? 32 : t == F64 ? 64 : 8;
}
static float fp8(u32 b, bool e5m2) {
  const int m = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const u32 e = (b & 0x7f) >> m, f = b & ((1u << m) - 1);
  double v = e ? std::ldexp((1 << m) + f, static_cast<int>(e) - bias - m) : std::ldexp(f, 1 - bias - m);
  if (e5m2 && e == 31) v = f ? NAN : INFINITY;
  if (!e5m2 && (b & 0x7f) == 0x7f) v = NAN;
  return static_cast<float>(b & 0x80 ? -v : v);
}
double decode(TensorType t, u32 v) {
  switch (t) {
    case F16: return half_to_float(v & 0xffff);
    case BF16: return bf16_to_float(v & 0xffff);
    case TF32: return bits<float>(v & 0xffffe000u);
    case S8: return static_cast<i8>(v);
    case U8T: return static_cast<u8>(v);
    case E4M3: return fp8(v & 255, false);
    case E5M2: return fp8(v & 255, true);
    default: return bits<float>(v);
  }
}

void transpose8x8(const u8* const* rows, u32* out) {
#if defined(__AVX512BW__)
  // Halves 8i + j of all 64 go to 8j + i: each half of them is a two-source permute.
  const auto four = [&](int i) {
    const auto row = [&](int k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i + k])); };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(row(0)), row(1), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(row(2)), row(3), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  };
  alignas(64) static constexpr auto FROM = [] {
    std::array<u16, 64> from{};
    for (u16 k = 0; k < 64; k++) from[k] = static_cast<u16>(k % 8 * 8 + k / 8);
    return from;
  }();
  const __m512i low = four(0), high = four(4);
  for (int h = 0; h < 2; h++)
    _mm512_storeu_si512(out + 16 * h, _mm512_permutex2var_epi16(low, _mm512_load_si512(&FROM[32 * h]), high));
#elif defined(__SSE2__)
  // Three rounds of interleaving.
  __m128i* p = reinterpret_cast<__m128i*>(out);
  __m128i r[8], t[8];
  for (int i = 0; i < 8; i++) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i]));
  for (int i = 0; i < 4; i++)
    t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]), t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  for (int i = 0; i < 4; i++)
    r[2 * i] = _mm_unpacklo_epi16(t[i], t[i + 4]), r[2 * i + 1] = _mm_unpackhi_epi16(t[i], t[i + 4]);
  for (int i = 0; i < 4; i++)
    t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]), t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  for (int i = 0; i < 8; i++) _mm_storeu_si128(p + i, t[i]);
#else
  u16 in[8][8], transposed[8][8];
  for (int i = 0; i < 8; i++) std::memcpy(in[i], rows[i], 16);
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) transposed[j][i] = in[i][j];
  std::memcpy(out, transposed, 128);
#endif
}
const char* tensor_path() { return PATH; }
void mma_m16n8k16(Element e, const u32* const* a, const u32* const* b, float (*c)[32]) {
  if (e == Element::BF16) mma<true>(a, b, c);
  else mma<false>(a, b, c);
}

}  // namespace ptx

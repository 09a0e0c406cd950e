// mma.sync and the wmma instructions of the CUDA C++ WMMA API.
//
// A real tensor core aligns the products of a step and truncates below a few extra bits before it adds. Here
// they are summed by fp32 FMAs in the order of k. Both keep fp32 accumulators, and differ in the last bits.
#include <algorithm>

#include "fragments.hpp"
#include "lanes.hpp"
#include "own_shared.hpp"
#include "tensor.hpp"

namespace ptx {
namespace {

template <Element E>
void mma_k16(Warp& w, const Ins& I, u32) {  // ext: d[4] a[4] b[2] c[4]
  const u32* e = w.ext + I.ext;
  alignas(64) float c[4][32];
  const u32* a[4];
  const u32* b[2] = {w.u(e[8]), w.u(e[9])};
  for (int i = 0; i < 4; i++) {
    a[i] = w.u(e[4 + i]);
    std::memcpy(c[i], w.f(e[10 + i]), 128);
  }
  mma_m16n8k16(E, a, b, c);
  for (int i = 0; i < 4; i++) std::memcpy(w.f(e[i]), c[i], 128);
}

// ---- any other shape
bool parse_shape(const std::string& s, Shape& out) {
  return std::sscanf(s.c_str(), "m%un%uk%u", &out.m, &out.n, &out.k) == 3;
}

constexpr u32 MAX_MN = 32, MAX_K = 32;
struct Matrices {
  double a[MAX_MN][MAX_K], b[MAX_K][MAX_MN];
  float c[MAX_MN][MAX_MN];
  i64 ci[MAX_MN][MAX_MN];
};
void multiply(Matrices& x, Shape s, bool integer, bool saturate) {
  if (integer) {
    for (u32 i = 0; i < s.m; i++)
      for (u32 j = 0; j < s.n; j++) {
        i64 sum = x.ci[i][j];
        for (u32 k = 0; k < s.k; k++) sum += static_cast<i64>(x.a[i][k]) * static_cast<i64>(x.b[k][j]);
        x.ci[i][j] =
            saturate ? std::clamp<i64>(sum, INT32_MIN, INT32_MAX) : static_cast<i32>(static_cast<u32>(sum));
      }
    return;
  }
  for (u32 i = 0; i < s.m; i++)
    for (u32 k = 0; k < s.k; k++)
      for (u32 j = 0; j < s.n; j++)
        x.c[i][j] = __builtin_fmaf(static_cast<float>(x.a[i][k]), static_cast<float>(x.b[k][j]), x.c[i][j]);
}

struct Config {  // packed into ext: the first words of a general mma
  Shape shape;
  Type ta, tb, tc, td;
  u32 na, nb, nc, nd, saturate;
};
constexpr u32 CONFIG_WORDS = 12;
Config config_at(const u32* e) {
  return {{e[0], e[1], e[2]},
          static_cast<Type>(e[3]),
          static_cast<Type>(e[4]),
          static_cast<Type>(e[5]),
          static_cast<Type>(e[6]),
          e[7],
          e[8],
          e[9],
          e[10],
          e[11]};
}
void push_config(Lower& x, const Config& c) {
  x.ins.ext = x.push(c.shape.m);
  for (u32 v :
       {c.shape.n, c.shape.k, u32(c.ta), u32(c.tb), u32(c.tc), u32(c.td), c.na, c.nb, c.nc, c.nd, c.saturate})
    x.push(v);
}

// Accumulators of a 16 x 8 tile: f32/s32 in four registers, f16 in two.
void mma_general(Warp& w, const Ins& I, u32) {
  const u32* e = w.ext + I.ext;
  const Config f = config_at(e);
  const u32 *d = e + CONFIG_WORDS, *a = d + f.nd, *b = a + f.na, *c = b + f.nb;
  static thread_local Matrices x;
  const u32 pa = 32 / element_bits(f.ta), mask = pa == 1 ? FULL : (1u << element_bits(f.ta)) - 1;
  const bool integer = f.tc == S32;
  for (u32 l = 0; l < 32; l++) {
    const u32 g = l >> 2, t = l & 3;
    for (u32 i = 0; i < f.na; i++)
      for (u32 s = 0; s < pa; s++)
        x.a[g + 8 * (i & 1)][t * pa + s + 4 * pa * (i >> 1)] =
            decode(f.ta, w.u(a[i])[l] >> (32 / pa * s % 32) & mask);
    for (u32 i = 0; i < f.nb; i++)
      for (u32 s = 0; s < pa; s++)
        x.b[t * pa + s + 4 * pa * i][g] = decode(f.tb, w.u(b[i])[l] >> (32 / pa * s % 32) & mask);
    for (u32 i = 0; i < 4; i++) {
      const u32 row = g + 8 * (i >> 1), col = 2 * t + (i & 1);
      if (f.tc == F16) x.c[row][col] = half_to_float(w.u(c[i >> 1])[l] >> (16 * (i & 1)) & 0xffff);
      else if (integer) x.ci[row][col] = static_cast<i32>(w.u(c[i])[l]);
      else x.c[row][col] = w.f(c[i])[l];
    }
  }
  multiply(x, f.shape, integer, f.saturate);
  for (u32 l = 0; l < 32; l++) {
    const u32 g = l >> 2, t = l & 3;
    for (u32 i = 0; i < 4; i++) {
      const u32 row = g + 8 * (i >> 1), col = 2 * t + (i & 1);
      if (f.td == F16) {
        u32& r = w.u(d[i >> 1])[l];
        const u32 h = float_to_half(x.c[row][col]);
        r = i & 1 ? (r & 0xffff) | h << 16 : h;
      } else if (integer) {
        w.u(d[i])[l] = static_cast<u32>(x.ci[row][col]);
      } else {
        w.f(d[i])[l] = x.c[row][col];
      }
    }
  }
}
void mma_f64(Warp& w, const Ins& I, u32) {  // m8n8k4; ext: d[2] a b c[2]
  const u32* e = w.ext + I.ext;
  double a[8][4], b[4][8], c[8][8];
  auto reg = [&](u32 s) { return reinterpret_cast<double*>(w.registers + s); };
  for (u32 l = 0; l < 32; l++) {
    a[l >> 2][l & 3] = reg(e[2])[l];
    b[l & 3][l >> 2] = reg(e[3])[l];
    for (u32 i = 0; i < 2; i++) c[l >> 2][2 * (l & 3) + i] = reg(e[4 + i])[l];
  }
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 4; k++)
      for (int j = 0; j < 8; j++) c[i][j] = __builtin_fma(a[i][k], b[k][j], c[i][j]);
  for (u32 l = 0; l < 32; l++)
    for (u32 i = 0; i < 2; i++) reg(e[i])[l] = c[l >> 2][2 * (l & 3) + i];
}

size_t length(const Operand& o) { return o.kind == Operand::VECTOR ? o.parts.size() : 1; }

void mma(Lower& x) {  // mma.sync.aligned.SHAPE.row.col.D.A.B.C
  Config f{};
  const auto& words = x.s.words;
  if (!parse_shape(x.word(3), f.shape)) x.unsupported("unknown shape");
  const size_t n = words.size();
  f.td = type_of(words[n - 4]), f.ta = type_of(words[n - 3]), f.tb = type_of(words[n - 2]),
  f.tc = type_of(words[n - 1]);
  f.saturate = x.has("satfinite");
  x.ins.flow = Flow::ALIGNED;
  x.source.tensor_flop = 2 * f.shape.m * f.shape.n * f.shape.k;
  if (f.ta == F64) {
    if (f.shape.m != 8 || f.shape.n != 8 || f.shape.k != 4) x.unsupported("only m8n8k4 in fp64");
    x.ins.ext = x.here();
    for (size_t i = 0; i < 4; i++) x.push_all(x.operand(i), "f64", i == 0);
    if (x.here() - x.ins.ext != 6) x.unsupported("number of registers");
    x.set(mma_f64);
    return;
  }
  if (f.shape.m != 16 || f.shape.n != 8) x.unsupported("unsupported shape");
  const u32 eb = element_bits(f.ta);
  if (element_bits(f.tb) != eb || ((f.ta == F16 || f.ta == BF16 || f.ta == TF32) && f.ta != f.tb))
    x.unsupported("operand types differ");
  const bool integer = f.ta == S8 || f.ta == U8T;
  const bool k_ok = eb == 16   ? f.shape.k == 8 || f.shape.k == 16
                    : eb == 32 ? f.shape.k == 4 || f.shape.k == 8
                               : f.shape.k == 16 || f.shape.k == 32;
  if (!k_ok) x.unsupported("unsupported shape for the type");
  if (f.tc != f.td ||
      (integer ? f.tc != S32 : f.tc != F32 && !(f.tc == F16 && (f.ta == F16 || f.ta >= E4M3))))
    x.unsupported("unsupported accumulator type");
  f.na = 16 * f.shape.k * eb / 1024, f.nb = 8 * f.shape.k * eb / 1024, f.nc = f.nd = f.tc == F16 ? 2 : 4;
  const u32 want[4] = {f.nd, f.na, f.nb, f.nc};
  for (size_t i = 0; i < 4; i++)
    if (length(x.operand(i)) != want[i])
      x.unsupported("operand " + std::to_string(i) + " must have " + std::to_string(want[i]) + " registers");
  const bool fast = f.shape.k == 16 && f.tc == F32 && (f.ta == F16 || f.ta == BF16);
  if (fast) x.ins.ext = x.here();
  else push_config(x, f);
  for (size_t i = 0; i < 4; i++) x.push_all(x.operand(i), "b32", i == 0);
  if (fast) x.set(f.ta == BF16 ? mma_k16<Element::BF16> : mma_k16<Element::F16>);
  else x.set(mma_general);
}

// ---- wmma
// ext of load and store: role, m, n, k, type, registers, row-major, stride slot (+1, 0: dense), registers...
constexpr u32 FRAGMENT_WORDS = 8;
Fragment fragment_at(const u32* e) {
  return {static_cast<Role>(e[0]), {e[1], e[2], e[3]}, static_cast<Type>(e[4]), e[5]};
}

// Where an access of a fragment lies, checked.
template <bool STORE>
[[gnu::always_inline]] inline u8* place(Warp& w, OwnShared* own, const Ins& I, u64 a, u32 bytes, u32 lane) {
  const u32 low = static_cast<u32>(a);
  if (own && bytes == 16) return STORE ? own->write(low, 16, ALL_LANES) : own->read(low, 16, ANY_LANE);
  if (own) return STORE ? own->write(low, bytes, ALL_LANES) : own->read(low, bytes, ANY_LANE);
  if (I.n == 2) return global_at(w, a, bytes, STORE ? Access::WRITE : Access::READ, lane);
  return STORE ? generic_at<Access::WRITE>(w, a, bytes, lane) : generic_at<Access::READ>(w, a, bytes, lane);
}
// All of the matrix is accessed, by whichever lanes: in shared memory its lines are checked 16 bytes at a
// time. Where the first begins; null where they do not lie in one CTA, or are not made of 16 bytes.
template <bool STORE>
u8* by_lines(Warp& w, OwnShared* own, const Ins& I, u64 base, u32 lines, u64 line_bytes, u64 apart) {
  if (!own || (line_bytes | base | apart) % 16) return nullptr;
  u8* const first = place<STORE>(w, own, I, base, 16, 0);
  bool together = true;
  for (u64 k = 0; k < lines; k++)
    for (u64 b = k ? 0 : 16; b < line_bytes; b += 16)
      together &= place<STORE>(w, own, I, base + k * apart + b, 16, 0) == first + k * apart + b;
  return together ? first : nullptr;
}

// Register `reg`, or from its bit `shift` on an element of it, between lanes and memory.
template <bool STORE, class T, class F>
[[gnu::always_inline]] inline void move_lanes(u32* reg, u32 shift, F place) {
  for (u32 l = 0; l < 32; l++) {
    u8* m = place(l);
    if constexpr (STORE) {
      const T v = static_cast<T>(reg[l] >> shift);
      std::memcpy(m, &v, sizeof v);
    } else {
      T v;
      std::memcpy(&v, m, sizeof v);
      reg[l] = shift ? reg[l] | u32(v) << shift : v;
    }
  }
}

template <bool STORE>
void wmma_move(Warp& w, const Ins& I, u32) {
  const u32* e = w.ext + I.ext;
  const Fragment f = fragment_at(e);
  const bool row_major = e[6];
  const u32 p = packed(f), size = element_bits(f.type) / 8, n = distinct(f);
  const Spot all = sides(f);
  const u32 lines = row_major ? all.row : all.col, along = row_major ? all.col : all.row;
  const u64 ld = e[7] ? w.u(e[7] - 1)[0] : along;
  const u64 base =
      (I.flags & ADDRESS_WIDE ? w.w(I.a)[0] : u64(w.u(I.a)[0])) + static_cast<u64>(static_cast<i64>(I.imm));
  const bool shared = I.n == 1 || (I.n == 0 && (base & WINDOW_MASK) == SHARED_WINDOW);
  if ((ld * size) % 16)
    throw Fault(EVO_PTX_MISALIGNED, "wmma: the leading dimension must be a multiple of 16 bytes");
  OwnShared of_shared(w);
  OwnShared* own = shared ? &of_shared : nullptr;
  Layout& layout = layout_of(f, row_major, ld);
  u8* const first = by_lines<STORE>(w, own, I, base, lines, along * size, ld * size);
  const u32 step = layout.whole ? p : 1, bytes = size * step;
  Count& count = w.worker->counts[w.pc];
  const u64 wavefronts = count.wavefronts, ideal = count.ideal;
  for (u32 k = 0; k < n * p; k += step) {
    const u64* from = layout.at.data() + k * 32;
    u64 at[32];
    u32 at32[32];
    for (u32 l = 0; l < 32; l++) at[l] = base + from[l], at32[l] = static_cast<u32>(at[l]);
    u32* reg = w.u(e[FRAGMENT_WORDS + k / p]);
    const auto move = [&](auto find) {
      const u32 shift = 8 * size * (k % p);
      if (bytes == 4) move_lanes<STORE, u32>(reg, 0, find);
      else if (bytes == 2) move_lanes<STORE, u16>(reg, shift, find);
      else move_lanes<STORE, u8>(reg, shift, find);
    };
    if (first) move([&](u32 l) { return first + from[l]; });
    else move([&](u32 l) { return place<STORE>(w, own, I, at[l], bytes, l); });
    if (!shared) count_global(w, at, FULL, bytes, STORE);
    else if (!first || !layout.wavefronts) count_shared(w, at32, FULL, bytes, STORE);
  }
  if (first && layout.wavefronts) {
    count.wavefronts += layout.wavefronts, count.ideal += layout.ideal;
    (STORE ? w.worker->totals.shared_written : w.worker->totals.shared_read) += n * p * 32 * size;
  } else if (first) {
    layout.wavefronts = count.wavefronts - wavefronts, layout.ideal = count.ideal - ideal;
  }
  if constexpr (!STORE)
    for (u32 i = n; i < f.registers; i++)
      std::memcpy(w.u(e[FRAGMENT_WORDS + i]), w.u(e[FRAGMENT_WORDS + i % n]), 128);
}

u32 fragment_registers(Lower& x, const Fragment& f) {
  const u32 n = distinct(f);
  const u32 have = f.registers;
  if (n == 0 || have < n || have % n) x.unsupported("number of registers");
  return n;
}
void wmma_load(Lower& x) {  // wmma.load.a.sync.aligned.LAYOUT.SHAPE{.space}.TYPE r, [p]{, stride}
  Fragment f{};
  const std::string& role = x.word(2);
  f.role = role == "a" ? ROLE_A : role == "b" ? ROLE_B : ROLE_C;
  const bool store = x.s.words[1] == "store";
  if (store) f.role = ROLE_D;
  if (!parse_shape(x.word(6), f.shape)) x.unsupported("unknown shape");
  f.type = type_of(x.type());
  const bool known = f.type == F16 || f.type == BF16 || f.type == TF32 || f.type == F32 || f.type == S8 ||
                     f.type == U8T || f.type == S32;
  if (!known) x.unsupported("unsupported element type");
  const Operand &mem = x.operand(store ? 0 : 1), &regs = x.operand(store ? 1 : 0);
  f.registers = static_cast<u32>(length(regs));
  fragment_registers(x, f);
  x.source.cls = Class::MATRIX_MOVE;
  x.ins.flow = Flow::ALIGNED;
  x.address(mem);
  x.ins.n = x.has("shared") || x.has("shared::cta") ? 1 : x.has("global") ? 2 : 0;
  std::vector<u32> slots;
  const Operand& list = regs;
  auto slot = [&](const Operand& o) { slots.push_back(store ? x.from(o, "b32") : x.to(o, "b32")); };
  if (list.kind == Operand::VECTOR)
    for (auto& o : list.parts) slot(o);
  else slot(list);
  const u32 stride = x.count() > 2 ? x.from(2, "u32") + 1 : 0;
  x.ins.ext = x.push(f.role);
  for (u32 v : {f.shape.m, f.shape.n, f.shape.k, u32(f.type), f.registers, u32(x.word(5) == "row"), stride})
    x.push(v);
  for (u32 v : slots) x.push(v);
  if (store) x.set(wmma_move<true>);
  else x.set(wmma_move<false>);
}

// m16n16k16 with fp32 accumulators: two steps of the fast path.
template <Element E>
// ext: d[8] a[4+] b[4+] c[8] as slots; imm: registers of a; n: of b
void wmma_fast(Warp& w, const Ins& I, u32) {
  const u32* e = w.ext + I.ext;
  const u32 *d = e, *a = e + 8, *b = a + I.imm, *c = b + I.n;
  const u32* ar[4] = {w.u(a[0]), w.u(a[1]), w.u(a[2]), w.u(a[3])};
  alignas(64) float acc[8][32];
  for (u32 i = 0; i < 8; i++) std::memcpy(acc[i], w.f(c[i]), 128);
  for (u32 h = 0; h < 2; h++) {
    const u32* br[2] = {w.u(b[2 * h]), w.u(b[2 * h + 1])};
    mma_m16n8k16(E, ar, br, acc + 4 * h);
  }
  for (u32 i = 0; i < 8; i++) std::memcpy(w.f(d[i]), acc[i], 128);
}
void wmma_general(Warp& w, const Ins& I, u32) {
  const u32* e = w.ext + I.ext;
  const Config f = config_at(e);
  const u32 *d = e + CONFIG_WORDS, *a = d + f.nd, *b = a + f.na, *c = b + f.nb;
  static thread_local Matrices x;
  const bool integer = f.tc == S32;
  auto each = [&](Role role, Type type, auto fn) {
    const Fragment g{role, f.shape, type, 0};
    for (u32 i = 0; i < distinct(g); i++)
      for (u32 s = 0; s < packed(g); s++)
        for (u32 l = 0; l < 32; l++) {
          const Spot at = spot(g, l, i, s);
          fn(at, i, s, l);
        }
  };
  auto part = [&](u32 v, Type t, u32 s) { return v >> (element_bits(t) * s % 32); };
  each(ROLE_A, f.ta,
       [&](Spot p, u32 i, u32 s, u32 l) { x.a[p.row][p.col] = decode(f.ta, part(w.u(a[i])[l], f.ta, s)); });
  each(ROLE_B, f.tb,
       [&](Spot p, u32 i, u32 s, u32 l) { x.b[p.row][p.col] = decode(f.tb, part(w.u(b[i])[l], f.tb, s)); });
  each(ROLE_C, f.tc, [&](Spot p, u32 i, u32 s, u32 l) {
    const u32 v = w.u(c[i])[l];
    if (integer) x.ci[p.row][p.col] = static_cast<i32>(v);
    else x.c[p.row][p.col] = f.tc == F16 ? half_to_float(part(v, F16, s) & 0xffff) : bits<float>(v);
  });
  multiply(x, f.shape, integer, f.saturate);
  each(ROLE_D, f.td, [&](Spot p, u32 i, u32 s, u32 l) {
    u32& r = w.u(d[i])[l];
    if (integer) r = static_cast<u32>(x.ci[p.row][p.col]);
    else if (f.td == F16)
      r = s ? (r & 0xffff) | float_to_half(x.c[p.row][p.col]) << 16 : float_to_half(x.c[p.row][p.col]);
    else r = bits<u32>(x.c[p.row][p.col]);
  });
}
void wmma_mma(Lower& x) {  // wmma.mma.sync.aligned.AL.BL.SHAPE.{D.C | D.A.B.C}
  Config f{};
  const auto& words = x.s.words;
  if (!parse_shape(x.word(6), f.shape)) x.unsupported("unknown shape");
  std::vector<std::string> types(words.begin() + 7, words.end());
  f.saturate = !types.empty() && types.back() == "satfinite";
  if (f.saturate) types.pop_back();
  if (types.size() == 2) f.td = type_of(types[0]), f.tc = type_of(types[1]), f.ta = f.tb = F16;
  else if (types.size() == 4)
    f.td = type_of(types[0]), f.ta = type_of(types[1]), f.tb = type_of(types[2]), f.tc = type_of(types[3]);
  else x.unsupported("unknown types");
  const bool integer = f.ta == S8 || f.ta == U8T;
  const bool ok = integer ? f.tb == f.ta && f.tc == S32 && f.td == S32
                          : (f.ta == F16 || f.ta == BF16 || f.ta == TF32) && f.tb == f.ta &&
                                (f.tc == F32 || f.tc == F16) && (f.td == F32 || f.td == F16);
  if (!ok) x.unsupported("unsupported types");
  const std::string shape = x.word(6);
  if (f.ta == TF32 ? shape != "m16n16k8" : shape != "m16n16k16" && shape != "m32n8k16" && shape != "m8n32k16")
    x.unsupported("unsupported shape");
  f.nd = static_cast<u32>(length(x.operand(0))), f.na = static_cast<u32>(length(x.operand(1)));
  f.nb = static_cast<u32>(length(x.operand(2))), f.nc = static_cast<u32>(length(x.operand(3)));
  fragment_registers(x, {ROLE_A, f.shape, f.ta, f.na});
  fragment_registers(x, {ROLE_B, f.shape, f.tb, f.nb});
  fragment_registers(x, {ROLE_C, f.shape, f.tc, f.nc});
  fragment_registers(x, {ROLE_D, f.shape, f.td, f.nd});
  x.ins.flow = Flow::ALIGNED;
  x.source.tensor_flop = 2 * f.shape.m * f.shape.n * f.shape.k;
  const bool fast = shape == "m16n16k16" && (f.ta == F16 || f.ta == BF16) && f.tc == F32 && f.td == F32;
  if (fast) x.ins.ext = x.here(), x.ins.imm = static_cast<i32>(f.na), x.ins.n = static_cast<u8>(f.nb);
  else push_config(x, f);
  for (size_t i = 0; i < 4; i++) x.push_all(x.operand(i), "b32", i == 0);
  if (fast) x.set(f.ta == BF16 ? wmma_fast<Element::BF16> : wmma_fast<Element::F16>);
  else x.set(wmma_general);
}

#define WMMA_SHAPES ".m16n16k16|m32n8k16|m8n32k16|m16n16k8"
const Row ROWS[] = {
    {"mma .sync .aligned .m16n8k16|m16n8k8 .row .col .f32 .f16 .f16 .f32", Class::TENSOR, 1, mma,
     "fp32 FMA chain"},
    {"mma .sync .aligned .m16n8k16|m16n8k8 .row .col .f16 .f16 .f16 .f16", Class::TENSOR, 1, mma,
     "fp32 sum, rounded once"},
    {"mma .sync .aligned .m16n8k16|m16n8k8 .row .col .f32 .bf16 .bf16 .f32", Class::TENSOR, 1, mma,
     "fp32 FMA chain"},
    {"mma .sync .aligned .m16n8k8|m16n8k4 .row .col .f32 .tf32 .tf32 .f32", Class::TENSOR, 1, mma,
     "fp32 FMA chain"},
    {"mma .sync .aligned .m16n8k32|m16n8k16 .row .col ?satfinite .s32 .s8|u8 .s8|u8 .s32", Class::TENSOR, 1,
     mma},
    {"mma .sync .aligned .m16n8k32|m16n8k16 .row .col ?kind::f8f6f4 .f32|f16 .e4m3|e5m2 .e4m3|e5m2 .f32|f16",
     Class::TENSOR, 1, mma, "fp32 FMA chain"},
    {"mma .sync .aligned .m8n8k4 .row .col .f64 .f64 .f64 .f64", Class::TENSOR, 1, mma},
    {"wmma .load .a|b|c .sync .aligned .row|col " WMMA_SHAPES
     " ?global|shared|shared::cta .f16|bf16|tf32|f32|s8|u8|s32",
     Class::MATRIX_MOVE, 1, wmma_load},
    {"wmma .store .d .sync .aligned .row|col " WMMA_SHAPES " ?global|shared|shared::cta .f16|f32|s32",
     Class::MATRIX_MOVE, 0, wmma_load},
    {"wmma .mma .sync .aligned .row|col .row|col " WMMA_SHAPES
     " .f16|f32|s32 .f16|f32|bf16|tf32|s8|u8 ?bf16|tf32|s8|u8 ?f32|s32 ?satfinite",
     Class::TENSOR, 1, wmma_mma, "fp32 FMA chain"},
};
}  // namespace

extern const std::span<const Row> tensor_rows;
const std::span<const Row> tensor_rows{ROWS};
}  // namespace ptx

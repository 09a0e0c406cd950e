// wgmma: a warp computes its 16 rows of the warpgroup's 64. Operands come from shared memory through
// descriptors.
//
// A wgmma reads its operands and writes its accumulators at some time between its issue and wgmma.wait_group.
// Here that is at the issue or (late wgmma) at the wait. In both cases the accumulators may not be touched
// until the wait. The operands in shared memory must have been written before the issue, and count as read
// until the wait.
#include <algorithm>

#include "lanes.hpp"
#include "own_shared.hpp"
#include "tensor.hpp"
#include "wgmma.hpp"

namespace ptx {
namespace {

// ext of an instruction: the shape and types, then slots of d, a (4 registers, or the descriptor) and b, then
// tracked numbers of d and a (+ 1).
struct Form {
  u32 n, type_a, type_b, type_d, registers_d, a_in_registers, transpose_a, transpose_b, negate,
      scale_d;  // scale_d: predicate; 8: negated
};
constexpr u32 FORM_WORDS = 11;
Form form_at(const u32* e) { return {e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[8], e[9]}; }

// Where 16-byte piece `inner` of row `outer` lies. K-major: rows along M or N, pieces along K. MN-major: rows
// along K, pieces along M or N. These are the canonical layouts of the PTX manual, with the swizzle applied
// to the address.
struct Descriptor {
  u32 start, leading, stride, mode;
  explicit Descriptor(u64 d)
      : start(static_cast<u32>(d & 0x3fff) << 4),
        leading(static_cast<u32>(d >> 16 & 0x3fff) << 4),
        stride(static_cast<u32>(d >> 32 & 0x3fff) << 4),
        mode(static_cast<u32>(d >> 62)) {}
  // mode: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
  u32 pieces() const { return mode == 0 ? 1 : 8u >> (mode - 1); }  // 16-byte pieces of a swizzled row
  u32 swizzled(u32 a) const { return mode == 0 ? a : a ^ (a >> 7 & (pieces() - 1)) << 4; }
  u32 k_major(u32 row, u32 piece) const {
    if (mode == 0) return start + (row >> 3) * stride + (row & 7) * 16 + piece * leading;
    return swizzled(start + (row >> 3) * stride + (row & 7) * 16 * pieces() + piece * 16);
  }
  u32 mn_major(u32 k, u32 piece) const {
    if (mode == 0) return start + piece * stride + (k & 7) * 16 + (k >> 3) * leading;
    return swizzled(start + (piece / pieces()) * leading + (piece % pieces()) * 16 + (k >> 3) * stride +
                    (k & 7) * 16 * pieces());
  }
};

template <class F>
void each_piece(const Form& f, const WgmmaOp& op, u32 row0, F visit) {  // of the operands in shared memory
  if (!f.a_in_registers) {
    const Descriptor a(op.a);
    for (u32 half = 0; half < 2; half++)
      for (u32 c = 0; c < 2; c++)
        for (u32 r = 0; r < 8; r++)
          visit(f.transpose_a ? a.mn_major(c * 8 + r, row0 / 8 + half) : a.k_major(row0 + half * 8 + r, c));
  }
  const Descriptor b(op.b);
  for (u32 j = 0; j < f.n / 8; j++)
    for (u32 c = 0; c < 2; c++)
      for (u32 r = 0; r < 8; r++) visit(f.transpose_b ? b.mn_major(c * 8 + r, j) : b.k_major(j * 8 + r, c));
}

// Descriptors hold 18 bits of the address: they always mean the CTA's own shared memory.
u32 offset_of(Warp& w, u32 address) {
  const u32 o = address - SHARED_BASE;
  if (u64(o) + 16 > w.cta->shared_bytes) {
    Fault f(EVO_PTX_OUT_OF_BOUNDS, "wgmma: an operand at shared address " + hex(address) +
                                       " is out of bounds (the CTA has " +
                                       std::to_string(w.cta->shared_bytes) + " bytes)");
    throw f.at(Space::SHARED, address, 16, "shared memory", static_cast<i64>(static_cast<i32>(o)));
  }
  return o;
}

void fragment(Warp& w, bool transpose, const Descriptor& d, u32 group, u32 chunk, u32* out) {
  const u8* row[8];
  for (u32 r = 0; r < 8; r++) {
    const u32 address = transpose ? d.mn_major(chunk * 8 + r, group) : d.k_major(group * 8 + r, chunk);
    row[r] = &w.cta->shared[address - SHARED_BASE];
  }
  if (transpose) transpose8x8(row, out);
  else
    for (u32 r = 0; r < 8; r++) std::memcpy(out + r * 4, row[r], 16);
}

// One step of 8 columns.
void multiply_general(const Form& f, const u32* const* a, const u32* const* b, u32 (*c)[32]) {
  const TensorType ta = static_cast<TensorType>(f.type_a), tb = static_cast<TensorType>(f.type_b);
  const u32 eb = element_bits(ta), per = 32 / eb, k_total = 256 / eb, mask = per == 1 ? FULL : (1u << eb) - 1;
  static thread_local double ma[16][32], mb[32][8];
  for (u32 l = 0; l < 32; l++)
    for (u32 s = 0; s < per; s++) {
      const u32 g = l >> 2, k = (l & 3) * per + s;
      for (u32 i = 0; i < 4; i++)
        ma[g + 8 * (i & 1)][k + 4 * per * (i >> 1)] = decode(ta, a[i][l] >> (eb * s % 32) & mask);
      for (u32 i = 0; i < 2; i++) mb[k + 4 * per * i][g] = decode(tb, b[i][l] >> (eb * s % 32) & mask);
    }
  for (u32 l = 0; l < 32; l++)
    for (u32 i = 0; i < 4; i++) {
      const u32 row = (l >> 2) + 8 * (i >> 1), col = 2 * (l & 3) + (i & 1);
      if (f.type_d == S32) {
        i64 sum = static_cast<i32>(c[i][l]);
        for (u32 k = 0; k < k_total; k++) sum += static_cast<i64>(ma[row][k]) * static_cast<i64>(mb[k][col]);
        c[i][l] = static_cast<u32>(sum);
      } else {
        float sum = bits<float>(c[i][l]);
        for (u32 k = 0; k < k_total; k++)
          sum = __builtin_fmaf(static_cast<float>(ma[row][k]), static_cast<float>(mb[k][col]), sum);
        c[i][l] = bits<u32>(sum);
      }
    }
}

void execute(Warp& w, WgmmaOp& op) {
  const u32* e = w.ext + op.ins->ext;
  const Form f = form_at(e);
  const u32* d = e + FORM_WORDS;
  const u32* ar = d + f.registers_d;
  const u32 row0 = (w.id & 3) * 16;
  alignas(64) u32 a[4][32];
  for (u32 i = 0; i < 4; i++) {
    if (f.a_in_registers) std::memcpy(a[i], w.u(ar[i]), 128);
    else fragment(w, f.transpose_a, Descriptor(op.a), row0 / 8 + (i & 1), i >> 1, a[i]);
    if (f.negate) {
      const u32 sign = element_bits(static_cast<TensorType>(f.type_a)) == 16  ? 0x80008000u
                       : element_bits(static_cast<TensorType>(f.type_a)) == 8 ? 0x80808080u
                                                                              : 0x80000000u;
      for (u32 l = 0; l < 32; l++) a[i][l] ^= sign;
    }
  }
  const u32* ap[4] = {a[0], a[1], a[2], a[3]};
  const Descriptor db(op.b);
  const bool fast = f.type_a == F16 || f.type_a == BF16;
  for (u32 j = 0; j < f.n / 8; j++) {
    alignas(64) u32 b[2][32];
    for (u32 i = 0; i < 2; i++) fragment(w, f.transpose_b, db, j, i, b[i]);
    const u32* bp[2] = {b[0], b[1]};
    alignas(64) u32 c[4][32];
    if (!op.accumulate) std::memset(c, 0, sizeof c);
    else if (f.type_d == F16)
      for (u32 i = 0; i < 4; i++)
        for (u32 l = 0; l < 32; l++)
          c[i][l] = bits<u32>(half_to_float(w.u(d[j * 2 + (i >> 1)])[l] >> (16 * (i & 1)) & 0xffff));
    else
      for (u32 i = 0; i < 4; i++) std::memcpy(c[i], w.u(d[j * 4 + i]), 128);
    if (fast)
      mma_m16n8k16(f.type_a == BF16 ? Element::BF16 : Element::F16, ap, bp,
                   reinterpret_cast<float(*)[32]>(c));
    else multiply_general(f, ap, bp, c);
    if (f.type_d == F16)
      for (u32 i = 0; i < 2; i++)
        for (u32 l = 0; l < 32; l++)
          w.u(d[j * 2 + i])[l] =
              float_to_half(bits<float>(c[2 * i][l])) | float_to_half(bits<float>(c[2 * i + 1][l])) << 16;
    else
      for (u32 i = 0; i < 4; i++) std::memcpy(w.u(d[j * 4 + i]), c[i], 128);
  }
  op.executed = true;
}

// Visits the tracked registers: accumulators, then A's.
template <class D, class A>
void each_register(const u32* e, const Form& f, D accumulator, A operand) {
  const u32* t = e + FORM_WORDS + f.registers_d + (f.a_in_registers ? 4 : 1) + 1;
  for (u32 i = 0; i < f.registers_d; i++)
    if (t[i]) accumulator(t[i] - 1);
  if (f.a_in_registers)
    for (u32 i = f.registers_d; i < f.registers_d + 4; i++)
      if (t[i]) operand(t[i] - 1);
}

void mark(Warp& w, const WgmmaOp& op) {
  const u32* e = w.ext + op.ins->ext;
  each_register(
      e, form_at(e), [&](u32 r) { w.pending[r] |= AS_ACCUMULATOR; },
      [&](u32 r) { w.pending[r] |= AS_OPERAND; });
}

// A wgmma.fence must stand between an access to these registers and the wgmma. Without it only wgmmas of one
// shape may accumulate in the same registers. A read of A's registers does no harm.
void check_registers(Warp& w, const u32* e, const Form& f) {
  auto missing = [](const char* what) {
    throw Fault(EVO_PTX_PROXY,
                std::string("wgmma uses registers that ") + what + " after the last wgmma.fence");
  };
  if (!w.fenced_wgmma) throw Fault(EVO_PTX_PROXY, "wgmma without a wgmma.fence before it");
  const u16 shape =
      static_cast<u16>(f.n | (256 / element_bits(static_cast<TensorType>(f.type_a))) << 9);  // n up to 256; k
  each_register(
      e, f,
      [&](u32 r) {
        if (w.pending[r] & AS_OPERAND)
          throw Fault(EVO_PTX_PROXY,
                      "wgmma accumulates in registers that one in flight reads as A (wgmma.wait_group is "
                      "missing or too lax)");
        if (w.touched[r]) missing(w.touched[r] & WRITTEN ? "were written" : "were read");
        if (w.accumulated[r] && w.accumulated[r] != shape) missing("a wgmma of another shape accumulated in");
      },
      [&](u32 r) {
        if (w.pending[r] & AS_ACCUMULATOR)
          throw Fault(
              EVO_PTX_PROXY,
              "A of this wgmma are accumulators of one that has not been waited for (wgmma.wait_group)");
        if (w.touched[r] & WRITTEN) missing("were written");
        if (w.accumulated[r]) missing("a wgmma accumulated in");
      });
  each_register(e, f, [&](u32 r) { w.accumulated[r] = shape; }, [](u32) {});
}

void wgmma(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const Form f = form_at(e);
  const Launch& L = *w.worker->launch;
  if (m != FULL) throw Fault(EVO_PTX_SYNC, "wgmma needs all lanes of the warp");
  auto op = std::make_unique<WgmmaOp>();
  op->ins = &I, op->pc = w.pc, op->group = w.wgmma_group;
  const u32* slots = e + FORM_WORDS + f.registers_d;
  if (!f.a_in_registers) op->a = w.w(slots[0])[0];
  op->b = w.w(slots[f.a_in_registers ? 4 : 1])[0];
  if ((op->a | op->b) >> 49 & 7)
    throw Fault(EVO_PTX_BAD_OPERAND,
                "wgmma: a matrix descriptor with a base offset; tiles must begin where their swizzle does");
  const u32 p = w.predicates[f.scale_d] ^ (e[10] ? FULL : 0);
  op->accumulate = p & 1;
  if (p != 0 && p != FULL) throw Fault(EVO_PTX_SYNC, "wgmma: the predicate scale-d differs between lanes");
  if (L.race) {
    check_registers(w, e, f);
    op->clock.assign(w.clock, w.clock + w.cta->cluster->clock_words);
  }
  Cta& c = *w.cta;
  OwnShared own(w);
  each_piece(f, *op, (w.id & 3) * 16, [&](u32 address) __attribute__((always_inline)) {
    const u32 o = offset_of(w, address);
    if (L.race) {
      own.remember(o, 16, NO_LANE);
      check_proxy(w, c, o, 16,
                  "wgmma (async proxy) reads what was written through the generic proxy without a "
                  "fence.proxy.async between");
    }
    if (L.init && c.shared_init[o >> 4] != 0xffff) uninitialised_shared(w, c.base + o, 16);
  });
  if (!L.late_wgmma) execute(w, *op);
  mark(w, *op);
  w.wgmma.push_back(std::move(op));
}

void wait_one(Warp& w, WgmmaOp& op) {
  const Launch& L = *w.worker->launch;
  const Form f = form_at(w.ext + op.ins->ext);
  OwnShared own(w);
  const Cell* const all = w.cta->cells.data();
  const u32* const issued = op.clock.data();
  if (L.race)
    each_piece(f, op, (w.id & 3) * 16, [&](u32 address) __attribute__((always_inline)) {
      const u32 o = address - SHARED_BASE;
      const auto check = [&](const Cell& cell) {
        if (cell.clock <= op.clock[cell.agent]) return;
        Fault fault(
            EVO_PTX_RACE,
            "race in shared memory at offset " + std::to_string(o) +
                ": overwritten while a wgmma that was not waited for reads it (issued at " +
                place_of(*L.program->module, *L.program->sources[L.program->code[op.pc].source].statement) +
                ")");
        throw fault.at(Space::SHARED, address, 16, "shared memory", o)
            .against(agent_name(*w.cta->cluster, cell.agent), cell.pc);
      };
      const Cell* const cells = all + (o >> 2);
      u32 bad = 0;
      for (u32 i = 0; i < (alike(cells, 4) ? 1u : 4u); i++)
        bad |= static_cast<u32>(cells[i].clock > issued[cells[i].agent]) | (cells[i].flags & CELL_PARTS);
      if (bad) [[unlikely]]
        for (u32 i = o >> 2; i < (o >> 2) + 4; i++) each_owner(*w.cta, i, 15, check);
      own.remember(o, 16, NO_LANE);
    });
  if (!op.executed) execute(w, op);
}
void wait(Warp& w, const Ins& I, u32) {
  if (w.wgmma.empty()) return;
  size_t k = 0;
  while (k < w.wgmma.size() && w.wgmma[k]->group + static_cast<u32>(I.imm) < w.wgmma_group)
    wait_one(w, *w.wgmma[k++]);
  if (!k) return;
  w.wgmma.erase(w.wgmma.begin(), w.wgmma.begin() + static_cast<long>(k));
  std::fill(w.pending.begin(), w.pending.end(), 0);
  for (auto& op : w.wgmma) mark(w, *op);
}

void make_wgmma(Lower& x) {
  const auto& words = x.s.words;
  Form f{};
  u32 m = 0, k = 0;
  if (std::sscanf(x.word(4).c_str(), "m%un%uk%u", &m, &f.n, &k) != 3 || m != 64 || f.n < 8 || f.n > 256 ||
      f.n % 8)
    x.unsupported("unknown shape");
  std::vector<std::string> types(words.begin() + 5, words.end());
  if (!types.empty() && types.back() == "satfinite") x.unsupported("satfinite");
  if (types.size() != 3) x.unsupported("unknown types");
  const TensorType td = type_of(types[0]), ta = type_of(types[1]), tb = type_of(types[2]);
  const u32 eb = element_bits(ta);
  const bool integer = ta == S8 || ta == U8T, fp8 = ta == E4M3 || ta == E5M2;
  const bool ok =
      integer ? (tb == S8 || tb == U8T) && td == S32
      : fp8   ? (tb == E4M3 || tb == E5M2) && (td == F32 || td == F16)
            : (ta == F16 || ta == BF16 || ta == TF32) && tb == ta && (td == F32 || (td == F16 && ta == F16));
  if (!ok || k * eb != 256) x.unsupported("unsupported types or shape");
  f.type_a = ta, f.type_b = tb, f.type_d = td;
  const Operand &d = x.operand(0), &a = x.operand(1), &b = x.operand(2), &scale = x.operand(3);
  f.registers_d = td == F16 ? f.n / 4 : f.n / 2;
  if (d.kind != Operand::VECTOR || d.parts.size() != f.registers_d) x.unsupported("number of accumulators");
  f.a_in_registers = a.kind == Operand::VECTOR;
  if (f.a_in_registers && a.parts.size() != 4) x.unsupported("number of A registers");
  size_t at = 4;
  if (!integer) {
    const i64 sa = static_cast<i64>(x.immediate(at)), sb = static_cast<i64>(x.immediate(at + 1));
    if ((sa != 1 && sa != -1) || (sb != 1 && sb != -1)) x.unsupported("scale factors must be 1 or -1");
    f.negate = sa * sb < 0;
    at += 2;
    if (eb == 16) {
      if (!f.a_in_registers) f.transpose_a = x.immediate(at++) != 0;
      f.transpose_b = x.immediate(at++) != 0;
    }
  }
  bool negated = false;
  f.scale_d = x.predicate(scale, &negated);
  x.ins.flow = Flow::ALIGNED;
  x.source.tensor_flop = 2 * 16 * f.n * k;
  x.ins.ext = x.push(f.n);
  for (u32 v : {f.type_a, f.type_b, f.type_d, f.registers_d, f.a_in_registers, f.transpose_a, f.transpose_b,
                f.negate, f.scale_d, u32(negated)})
    x.push(v);
  x.push_all(d, "b32", true);
  if (f.a_in_registers) x.push_all(a, "b32", false);
  else x.push(x.from(a, "b64"));
  x.push(x.from(b, "b64"));
  for (auto& r : d.parts) x.push(x.tracked(r));
  if (f.a_in_registers)
    for (auto& r : a.parts) x.push(x.tracked(r));
  x.set(wgmma);
}
void make_fence(Lower& x) {
  x.ins.flow = Flow::ALIGNED;
  x.set([](Warp& w, const Ins&, u32) {
    std::fill(w.touched.begin(), w.touched.end(), 0);
    std::fill(w.accumulated.begin(), w.accumulated.end(), 0);
    w.fenced_wgmma = true;
  });
}
void make_commit(Lower& x) {
  x.ins.flow = Flow::ALIGNED;
  x.set([](Warp& w, const Ins&, u32) { w.wgmma_group++; });
}
void make_wait(Lower& x) {
  x.ins.flow = Flow::ALIGNED;
  x.ins.imm = static_cast<i32>(std::min<u64>(x.immediate(0), 1 << 20));
  x.set(wait);
}

#define SHAPES                                                                                          \
  "m64n8k16|m64n16k16|m64n24k16|m64n32k16|m64n40k16|m64n48k16|m64n56k16|m64n64k16|m64n72k16|m64n80k16|" \
  "m64n88k16|m64n96k16|m64n104k16|m64n112k16|m64n120k16|m64n128k16|m64n136k16|m64n144k16|"              \
  "m64n152k16|m64n160k16|m64n168k16|m64n176k16|m64n184k16|m64n192k16|m64n200k16|m64n208k16|m64n216k16|" \
  "m64n224k16|m64n232k16|m64n240k16|m64n248k16|m64n256k16"
#define SHAPES_8                                                                                        \
  "m64n8k32|m64n16k32|m64n24k32|m64n32k32|m64n40k32|m64n48k32|m64n56k32|m64n64k32|m64n72k32|m64n80k32|" \
  "m64n88k32|m64n96k32|m64n104k32|m64n112k32|m64n120k32|m64n128k32|m64n136k32|m64n144k32|"              \
  "m64n152k32|m64n160k32|m64n168k32|m64n176k32|m64n184k32|m64n192k32|m64n200k32|m64n208k32|m64n216k32|" \
  "m64n224k32|m64n232k32|m64n240k32|m64n248k32|m64n256k32"
#define SHAPES_32                                                                                        \
  "m64n8k8|m64n16k8|m64n24k8|m64n32k8|m64n40k8|m64n48k8|m64n56k8|m64n64k8|m64n72k8|m64n80k8|m64n88k8|"   \
  "m64n96k8|m64n104k8|m64n112k8|m64n120k8|m64n128k8|m64n136k8|m64n144k8|m64n152k8|"                      \
  "m64n160k8|m64n168k8|m64n176k8|m64n184k8|m64n192k8|m64n200k8|m64n208k8|m64n216k8|m64n224k8|m64n232k8|" \
  "m64n240k8|m64n248k8|m64n256k8"
const Row ROWS[] = {
    {"wgmma .mma_async .sync .aligned ." SHAPES " .f32|f16 .f16|bf16 .f16|bf16", Class::TENSOR, 1, make_wgmma,
     "fp32 FMA chain; f16 accumulators are rounded once a step"},
    {"wgmma .mma_async .sync .aligned ." SHAPES_8 " .f32|f16|s32 .e4m3|e5m2|s8|u8 .e4m3|e5m2|s8|u8",
     Class::TENSOR, 1, make_wgmma, "fp32 FMA chain"},
    {"wgmma .mma_async .sync .aligned ." SHAPES_32 " .f32 .tf32 .tf32", Class::TENSOR, 1, make_wgmma,
     "fp32 FMA chain"},
    {"wgmma .fence .sync .aligned", Class::BARRIER, 0, make_fence},
    {"wgmma .commit_group .sync .aligned", Class::BARRIER, 0, make_commit},
    {"wgmma .wait_group .sync .aligned", Class::BARRIER, 0, make_wait},
};
}  // namespace

extern const std::span<const Row> wgmma_rows;
const std::span<const Row> wgmma_rows{ROWS};
}  // namespace ptx

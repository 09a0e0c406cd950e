// Predicates, comparisons, selections and moves.
#include "lanes.hpp"

namespace ptx {
namespace {

// ---- predicates
template <auto F>
void predicate_op(Warp& w, const Ins& I, u32 m) {
  w.set_predicate(I.d, m,
                  F(w.predicates[I.a] ^ (I.n & 1 ? FULL : 0), w.predicates[I.b] ^ (I.n & 2 ? FULL : 0)));
}
void predicates(Lower& x) {
  const std::string& o = x.s.words[0];
  bool na = false, nb = false;
  x.ins.d = x.predicate_to(x.operand(0));
  x.ins.a = x.predicate(x.operand(1), &na);
  x.ins.b = x.count() > 2 ? x.predicate(x.operand(2), &nb) : 0;
  x.ins.n = static_cast<u8>((na ? 1 : 0) | (nb ? 2 : 0));
  if (o == "and") x.set(predicate_op<[](u32 a, u32 b) { return a & b; }>);
  else if (o == "or") x.set(predicate_op<[](u32 a, u32 b) { return a | b; }>);
  else if (o == "xor") x.set(predicate_op<[](u32 a, u32 b) { return a ^ b; }>);
  else if (o == "not") x.set(predicate_op<[](u32 a, u32) { return ~a; }>);
  else x.set(predicate_op<[](u32 a, u32) { return a; }>);
}

// ---- comparisons
using Compare = u32 (*)(const Warp&, u32, u32);

template <class T>
Compare compare_int(const std::string& c) {
  using S = slot_t<T>;
  if (c == "eq") return compare_lanes<S, [](S a, S b) { return (T(a) == T(b)); }>;
  if (c == "ne") return compare_lanes<S, [](S a, S b) { return (T(a) != T(b)); }>;
  if (c == "lt" || c == "lo") return compare_lanes<S, [](S a, S b) { return (T(a) < T(b)); }>;
  if (c == "le" || c == "ls") return compare_lanes<S, [](S a, S b) { return (T(a) <= T(b)); }>;
  if (c == "gt" || c == "hi") return compare_lanes<S, [](S a, S b) { return (T(a) > T(b)); }>;
  if (c == "ge" || c == "hs") return compare_lanes<S, [](S a, S b) { return (T(a) >= T(b)); }>;
  return nullptr;
}
// S: what lies in the slot, V: makes a float or double of it.
template <class S, auto V>
Compare compare_real(const std::string& c) {
  if (c == "eq") return compare_lanes<S, [](S a, S b) { return (V(a) == V(b)); }>;
  if (c == "ne") return compare_lanes<S, [](S a, S b) { return (V(a) < V(b) || V(a) > V(b)); }>;
  if (c == "lt") return compare_lanes<S, [](S a, S b) { return (V(a) < V(b)); }>;
  if (c == "le") return compare_lanes<S, [](S a, S b) { return (V(a) <= V(b)); }>;
  if (c == "gt") return compare_lanes<S, [](S a, S b) { return (V(a) > V(b)); }>;
  if (c == "ge") return compare_lanes<S, [](S a, S b) { return (V(a) >= V(b)); }>;
  if (c == "equ") return compare_lanes<S, [](S a, S b) { return !(V(a) < V(b) || V(a) > V(b)); }>;
  if (c == "neu") return compare_lanes<S, [](S a, S b) { return (V(a) != V(b)); }>;
  if (c == "ltu") return compare_lanes<S, [](S a, S b) { return !(V(a) >= V(b)); }>;
  if (c == "leu") return compare_lanes<S, [](S a, S b) { return !(V(a) > V(b)); }>;
  if (c == "gtu") return compare_lanes<S, [](S a, S b) { return !(V(a) <= V(b)); }>;
  if (c == "geu") return compare_lanes<S, [](S a, S b) { return !(V(a) < V(b)); }>;
  if (c == "num") return compare_lanes<S, [](S a, S b) { return (V(a) == V(a) && V(b) == V(b)); }>;
  if (c == "nan") return compare_lanes<S, [](S a, S b) { return (V(a) != V(a) || V(b) != V(b)); }>;
  return nullptr;
}
Compare compare_of(const std::string& type, const std::string& c, bool z) {
  if (type == "u16" || type == "b16") return compare_int<u16>(c);
  if (type == "s16") return compare_int<i16>(c);
  if (type == "u32" || type == "b32") return compare_int<u32>(c);
  if (type == "s32") return compare_int<i32>(c);
  if (type == "u64" || type == "b64") return compare_int<u64>(c);
  if (type == "s64") return compare_int<i64>(c);
  if (type == "f32")
    return z ? compare_real<float, [](float v) { return flush(v); }>(c)
             : compare_real<float, [](float v) { return v; }>(c);
  if (type == "f64") return compare_real<double, [](double v) { return v; }>(c);
  if (type == "f16") return compare_real<u32, [](u32 v) { return half_to_float(v); }>(c);
  if (type == "bf16") return compare_real<u32, [](u32 v) { return bf16_to_float(v); }>(c);
  return nullptr;
}

u32 combine(u32 how, u32 t, u32 q) { return how == 1 ? t & q : how == 2 ? t | q : how == 3 ? t ^ q : t; }

// ext: pointer (two words), second destination + 1, boolean source + 1, how (1 and, 2 or, 3 xor; 8: source
// negated)
Compare compare_at(const Warp& w, u32 e) {
  return reinterpret_cast<Compare>(u64(w.ext[e]) | u64(w.ext[e + 1]) << 32);
}
void setp_lanes(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const u32 t = compare_at(w, I.ext)(w, I.a, I.b), how = e[4] & 7;
  if (!how && !e[2]) {
    w.set_predicate(I.d, m, t);
    return;
  }
  const u32 q = e[3] ? w.predicates[e[3] - 1] ^ (e[4] & 8 ? FULL : 0) : 0;
  w.set_predicate(I.d, m, combine(how, t, q));
  if (e[2]) w.set_predicate(e[2] - 1, m, combine(how, ~t, q));
}

void push_compare(Lower& x, const std::string& type) {
  const Compare f = compare_of(type, x.word(1), x.has("ftz"));
  if (!f) x.unsupported("unsupported comparison");
  const u64 p = reinterpret_cast<u64>(f);
  x.ins.ext = x.push(static_cast<u32>(p));
  x.push(static_cast<u32>(p >> 32));
}
u32 boolean(Lower& x, size_t source) {  // pushes source and how
  u32 how = 0;
  if (x.has("and")) how = 1;
  else if (x.has("or")) how = 2;
  else if (x.has("xor")) how = 3;
  if (!how) {
    x.push(0), x.push(0);
    return 0;
  }
  bool neg = false;
  x.push(x.predicate(x.operand(source), &neg) + 1);
  x.push(how | (neg ? 8u : 0u));
  return how;
}
void setp(Lower& x) {
  const std::string& t = x.type();
  const Operand& d = x.operand(0);
  const bool pair = d.kind == Operand::PAIR;
  if (pair && d.parts.size() != 2) x.unsupported("malformed destination");
  x.ins.d = x.predicate_to(pair ? d.parts[0] : d);
  x.ins.a = x.from(1, t);
  x.ins.b = x.from(2, t);
  push_compare(x, t);
  x.push(pair ? x.predicate_to(d.parts[1]) + 1 : 0);
  boolean(x, 3);
  x.set(setp_lanes);
}
template <bool FLOAT>
void set_lanes(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const u32 t = compare_at(w, I.ext)(w, I.a, I.b);
  const u32 r = combine(e[4] & 7, t, e[3] ? w.predicates[e[3] - 1] ^ (e[4] & 8 ? FULL : 0) : 0);
  each_lane(m, [&](u32 l) { w.u(I.d)[l] = r >> l & 1 ? (FLOAT ? 0x3f800000u : FULL) : 0; });
}
void set_(Lower& x) {
  const std::string& t = x.type();
  const std::string& d = x.word(x.s.words.size() - 2);
  x.ins.d = x.to(0, d);
  x.ins.a = x.from(1, t);
  x.ins.b = x.from(2, t);
  push_compare(x, t);
  x.push(0);
  boolean(x, 3);
  x.set(d == "f32" ? set_lanes<true> : set_lanes<false>);
}
template <class T>
void selp_lanes(Warp& w, const Ins& I, u32 m) {
  const u32 q = w.predicates[I.c] ^ (I.n ? FULL : 0);
  const T* a = reinterpret_cast<const T*>(w.registers + I.a);
  const T* b = reinterpret_cast<const T*>(w.registers + I.b);
  T* d = reinterpret_cast<T*>(w.registers + I.d);
  if (m == FULL) {
#pragma GCC ivdep
    for (u32 l = 0; l < 32; l++) d[l] = q >> l & 1 ? a[l] : b[l];
  } else {
    for (u32 l = 0; l < 32; l++)
      if (m >> l & 1) d[l] = q >> l & 1 ? a[l] : b[l];
  }
}
void selp(Lower& x) {
  const std::string& t = x.type();
  x.ins.d = x.to(0, t);
  x.ins.a = x.from(1, t), x.ins.b = x.from(2, t);
  bool neg = false;
  x.ins.c = x.predicate(x.operand(3), &neg);
  x.ins.n = neg;
  x.set(width_of(t) == 64 ? selp_lanes<u64> : selp_lanes<u32>);
}
void slct(Lower& x) {
  const std::string& t = x.word(x.s.words.size() - 2);
  x.ins.d = x.to(0, t);
  x.ins.a = x.from(1, t), x.ins.b = x.from(2, t);
  x.ins.c = x.from(3, x.type());
  const bool f = x.type() == "f32";
  if (width_of(t) == 64)
    f ? x.set(op<u64, u64, u64, float, LANES(c >= 0 ? a : b)>())
      : x.set(op<u64, u64, u64, i32, LANES(c >= 0 ? a : b)>());
  else
    f ? x.set(op<u32, u32, u32, float, LANES(c >= 0 ? a : b)>())
      : x.set(op<u32, u32, u32, i32, LANES(c >= 0 ? a : b)>());
}

// ---- moves
// ext: parts; n: bits of a part; imm: how many; flags: 64-bit destination
void pack(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  each_lane(m, [&](u32 l) {
    u64 v = 0;
    for (i32 i = 0; i < I.imm; i++)
      v |= u64(w.u(e[i])[l] & (I.n == 32 ? FULL : (1u << I.n) - 1)) << (I.n * i);
    if (I.flags) w.w(I.d)[l] = v;
    else w.u(I.d)[l] = static_cast<u32>(v);
  });
}
void unpack(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  each_lane(m, [&](u32 l) {
    const u64 v = I.flags ? w.w(I.a)[l] : w.u(I.a)[l];
    for (i32 i = 0; i < I.imm; i++)
      w.u(e[i])[l] = static_cast<u32>(v >> (I.n * i)) & (I.n == 32 ? FULL : (1u << I.n) - 1);
  });
}
void clock_low(Warp& w, const Ins& I, u32 m) {
  each_lane(m, [&](u32 l) {
    w.u(I.d)[l] = static_cast<u32>(w.worker->clock + w.cta->cluster->instructions) * (I.n ? I.n : 1);
  });
}
void clock_high(Warp& w, const Ins& I, u32 m) {
  each_lane(m, [&](u32 l) {
    w.u(I.d)[l] = static_cast<u32>((w.worker->clock + w.cta->cluster->instructions) >> 32);
  });
}
void clock_wide(Warp& w, const Ins& I, u32 m) {
  each_lane(m, [&](u32 l) { w.w(I.d)[l] = w.worker->clock + w.cta->cluster->instructions; });
}

void mov(Lower& x) {
  const std::string& t = x.type();
  const Operand &d = x.operand(0), &a = x.operand(1);
  const u32 bits_ = width_of(t);
  x.source.cls = Class::MOVE;
  if (d.kind == Operand::VECTOR || a.kind == Operand::VECTOR) {
    const Operand& v = d.kind == Operand::VECTOR ? d : a;
    const size_t n = v.parts.size();
    if (d.kind == a.kind || n == 0 || bits_ % n || bits_ / n < 8) x.unsupported("unsupported vector move");
    const std::string part = "b" + std::to_string(bits_ / n);
    x.ins.ext = x.here();
    x.ins.n = static_cast<u8>(bits_ / n), x.ins.imm = static_cast<i32>(n), x.ins.flags = bits_ == 64;
    x.push_all(v, part, d.kind == Operand::VECTOR);
    if (d.kind == Operand::VECTOR) x.ins.a = x.from(a, t), x.set(unpack);
    else x.ins.d = x.to(d, t), x.set(pack);
    return;
  }
  x.ins.d = x.to(d, t);
  if (a.kind == Operand::SYMBOL) {
    const std::string& n = a.symbol;
    if (n == "%clock" || n == "%clock_hi" || n == "%clock64" || n == "%globaltimer" ||
        n == "%globaltimer_lo" || n == "%globaltimer_hi") {
      x.set(bits_ == 64 ? clock_wide : n.ends_with("hi") ? clock_high : clock_low);
      return;
    }
    if (n == "%activemask") x.unsupported("%activemask");
  }
  x.ins.a = x.from(a, t);
  bits_ == 64 ? x.set(op<u64, u64, u64, u64, LANES(a)>()) : x.set(op<u32, u32, u32, u32, LANES(a)>());
}
void mov_pred(Lower& x) {
  if (x.operand(1).kind == Operand::IMM || x.operand(1).kind == Operand::REG) predicates(x);
  else x.unsupported("unsupported move to a predicate");
}

#define COMPARISONS ".eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
#define ALL_TYPES ".b16|b32|b64|u16|u32|u64|s16|s32|s64|f16|bf16|f32|f64"
const Row ROWS[] = {
    {"and .pred", Class::PREDICATE, 1, predicates},
    {"or .pred", Class::PREDICATE, 1, predicates},
    {"xor .pred", Class::PREDICATE, 1, predicates},
    {"not .pred", Class::PREDICATE, 1, predicates},
    {"setp " COMPARISONS " ?and|or|xor ?ftz " ALL_TYPES, Class::PREDICATE, 1, setp},
    {"set " COMPARISONS " ?and|or|xor ?ftz .u32|s32|f32 " ALL_TYPES, Class::PREDICATE, 1, set_},
    {"selp " ALL_TYPES, Class::INT, 1, selp},
    {"slct ?ftz .b32|b64|u32|u64|s32|s64|f32|f64 .s32|f32", Class::INT, 1, slct},
    {"mov .b16|b32|b64|u16|u32|u64|s16|s32|s64|f16|bf16|f16x2|bf16x2|f32|f64", Class::MOVE, 1, mov,
     "%clock counts executed warp instructions"},
    {"mov .pred", Class::PREDICATE, 1, mov_pred},
};
}  // namespace

extern const std::span<const Row> select_rows;
const std::span<const Row> select_rows{ROWS};
}  // namespace ptx

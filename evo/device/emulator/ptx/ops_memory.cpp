// Loads, stores and atomics in all state spaces.
#include <algorithm>

#include "lanes.hpp"
#include "own_shared.hpp"

namespace ptx {

ValueType value_type(const std::string& t) {
  static const std::pair<const char*, ValueType> names[] = {
      {"s32", T_S32},     {"u64", T_U64},       {"b64", T_U64}, {"s64", T_S64},
      {"f32", T_F32},     {"f64", T_F64},       {"f16", T_F16}, {"bf16", T_BF16},
      {"f16x2", T_F16X2}, {"bf16x2", T_BF16X2}, {"b16", T_B16}};
  for (auto& [name, type] : names)
    if (t == name) return type;
  return T_U32;
}

template <class F>
static u32 per_half(u32 a, u32 b, F f) {
  return f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16;
}

u64 reduce_value(Operation o, ValueType t, u64 old, u64 b, u64 c) {
  switch (o) {
    case EXCH: return b;
    case CAS: return old == b ? c : old;
    case AND: return old & b;
    case OR: return old | b;
    case XOR: return old ^ b;
    case INC: return static_cast<u32>(old) >= static_cast<u32>(b) ? 0 : old + 1;
    case DEC: return old == 0 || static_cast<u32>(old) > static_cast<u32>(b) ? b : old - 1;
    default: break;
  }
  auto real = [&](auto x, auto y) -> decltype(x) {
    if (o == ADD) return x + y;
    return o == MIN ? static_cast<decltype(x)>(y != y || x < y ? x : y)
                    : static_cast<decltype(x)>(y != y || x > y ? x : y);
  };
  auto half = [&](u32 x, u32 y) { return float_to_half(real(half_to_float(x), half_to_float(y))); };
  auto bfloat = [&](u32 x, u32 y) { return float_to_bf16(real(bf16_to_float(x), bf16_to_float(y))); };
  const u32 a32 = static_cast<u32>(old), b32 = static_cast<u32>(b);
  switch (t) {
    case T_U32: return o == ADD ? a32 + b32 : o == MIN ? std::min(a32, b32) : std::max(a32, b32);
    case T_S32:
      return o == ADD
                 ? a32 + b32
                 : static_cast<u32>(o == MIN ? std::min<i32>(static_cast<i32>(a32), static_cast<i32>(b32))
                                             : std::max<i32>(static_cast<i32>(a32), static_cast<i32>(b32)));
    case T_U64: return o == ADD ? old + b : o == MIN ? std::min(old, b) : std::max(old, b);
    case T_S64:
      return o == ADD
                 ? old + b
                 : static_cast<u64>(o == MIN ? std::min<i64>(static_cast<i64>(old), static_cast<i64>(b))
                                             : std::max<i64>(static_cast<i64>(old), static_cast<i64>(b)));
    case T_F32: return bits<u32>(real(bits<float>(a32), bits<float>(b32)));
    case T_F64: return bits<u64>(real(bits<double>(old), bits<double>(b)));
    case T_F16: return half(a32 & 0xffff, b32 & 0xffff);
    case T_BF16: return bfloat(a32 & 0xffff, b32 & 0xffff);
    case T_F16X2: return per_half(a32, b32, half);
    case T_BF16X2: return per_half(a32, b32, bfloat);
    default: return old;
  }
}

namespace {

// NARROW, WIDE: 16- or 64-bit registers. SETS: an exchange of which nobody takes the old value: a strong
// store.
enum Flag : u8 { SIGNED = 2, ACQUIRES = 4, RELEASES = 8, NARROW = 16, WIDE = 32, POLLS = 64, SETS = 128 };

// The scope of a strong access; volatile is relaxed, and as wide as can be.
Scope scope_of(Lower& x) {
  return x.has("cta") ? Scope::CTA : x.has("cluster") ? Scope::CLUSTER : Scope::GPU;
}

Space space_of(Lower& x) {
  for (auto& w : x.s.words) {
    if (w == "global") return Space::GLOBAL;
    if (w == "shared" || w == "shared::cta" || w == "shared::cluster") return Space::SHARED;
    if (w == "local") return Space::LOCAL;
    if (w == "const") return Space::CONST;
    if (w == "param" || w == "param::entry" || w == "param::func") return Space::PARAM;
  }
  return Space::GENERIC;
}

template <Space S, Access A>
inline u8* locate(Warp& w, u64 address, u32 n, u32 lane, Scope scope) {
  if constexpr (S == Space::SHARED) return shared_at<A>(w, static_cast<u32>(address), n, lane, scope);
  else if constexpr (S == Space::LOCAL) return local_at(w, address, n, writes(A), lane);
  else if constexpr (S == Space::GLOBAL) return global_at(w, address, n, A, lane, scope);
  else return generic_at<A>(w, address, n, lane, scope);
}

// Where the lanes of one instruction find their bytes.
template <Space S, Access A>
struct Place {
  Warp& w;
  Scope scope;
  u8* operator()(u64 address, u32 n, u32 lane) { return locate<S, A>(w, address, n, lane, scope); }
};
template <>
struct Place<Space::SHARED, Access::READ> {
  OwnShared own;
  Place(Warp& w, Scope) : own(w) {}
  u8* operator()(u64 address, u32 n, u32 lane) { return own.read(static_cast<u32>(address), n, lane); }
};
template <>
struct Place<Space::SHARED, Access::WRITE> {
  OwnShared own;
  Place(Warp& w, Scope) : own(w) {}
  u8* operator()(u64 address, u32 n, u32 lane) { return own.write(static_cast<u32>(address), n, lane); }
};

inline void addresses(Warp& w, const Ins& I, u64* out) {
  const i64 imm = I.imm;
  if (I.flags & ADDRESS_WIDE) {
    const u64* a = w.w(I.a);
    for (u32 l = 0; l < 32; l++) out[l] = a[l] + static_cast<u64>(imm);
  } else {
    const u32* a = w.u(I.a);
    for (u32 l = 0; l < 32; l++) out[l] = static_cast<u32>(a[l] + static_cast<u32>(imm));
  }
}

// Counts the lanes by the memory that they access.
template <Space S>
void count(Warp& w, const u64* at, u32 lanes, u32 n, bool write) {
  if constexpr (S == Space::SHARED) {
    u32 a[32];
    for (u32 l = 0; l < 32; l++) a[l] = static_cast<u32>(at[l]);
    count_shared(w, a, lanes, n, write);
  } else if constexpr (S == Space::GLOBAL) {
    count_global(w, at, lanes, n, write);
  } else if constexpr (S == Space::GENERIC) {
    u32 shared = 0, global = 0;
    each_lane(lanes, [&](u32 l) {
      const u64 window = at[l] & WINDOW_MASK;
      (window == SHARED_WINDOW ? shared : global) |= window == LOCAL_WINDOW ? 0 : 1u << l;
    });
    if (shared) count<Space::SHARED>(w, at, shared, n, write);
    if (global) count<Space::GLOBAL>(w, at, global, n, write);
  }
}

inline bool is_shared(u64 address, Space s) {
  return s == Space::SHARED || (s == Space::GENERIC && (address & WINDOW_MASK) == SHARED_WINDOW);
}

template <Space S, Access A>
void load(Warp& w, const Ins& I, u32 m) {  // n: bytes of an element; c: scope; ext: vector length, registers
  const Scope scope = strong(A) ? static_cast<Scope>(I.c) : Scope::NONE;
  u64 at[32];
  addresses(w, I, at);
  const u32 vn = w.ext[I.ext], es = I.n;
  const u32* r = w.ext + I.ext + 1;
  count<S>(w, at, m, es * vn, false);
  Place<S, A> place{w, scope};
  if constexpr (S == Space::SHARED && A == Access::READ) {
    const bool all = m == FULL && vn == 1 && !(I.flags & WIDE), narrow = I.flags & NARROW;
    if (all && es == 4 && !narrow && place.own.template read_warp<4>(at, w.u(r[0]))) return;
    if (all && es == 2 && (narrow || !(I.flags & SIGNED)) && place.own.template read_warp<2>(at, w.u(r[0])))
      return;
  }
  each_access(S == Space::SHARED, m, es * vn, [&](u32 l, auto n) __attribute__((always_inline)) {
    const u8* p = place(at[l], n, l);
    if (strong(A) && (I.flags & POLLS))
      acquire(w, sync_key(w, at[l], is_shared(at[l], S)), {scope, (I.flags & ACQUIRES) != 0, false, false});
    for (u32 v = 0; v < vn; v++, p += es) {
      if (es == 4 && !(I.flags & (WIDE | NARROW))) {
        std::memcpy(&w.u(r[v])[l], p, 4);
        continue;
      }
      u64 x = element(p, es);
      if ((I.flags & SIGNED) && es < 8)
        x = static_cast<u64>(static_cast<i64>(x << (64 - 8 * es)) >> (64 - 8 * es));
      if (I.flags & WIDE) w.w(r[v])[l] = x;
      else w.u(r[v])[l] = I.flags & NARROW ? static_cast<u16>(x) : static_cast<u32>(x);
    }
  });
  if (I.flags & POLLS) yield(w);
}

template <Space S, Access A>
void store(Warp& w, const Ins& I, u32 m) {
  const Scope scope = strong(A) ? static_cast<Scope>(I.c) : Scope::NONE;
  u64 at[32];
  addresses(w, I, at);
  const u32 vn = w.ext[I.ext], es = I.n;
  const u32* r = w.ext + I.ext + 1;
  count<S>(w, at, m, es * vn, true);
  Place<S, A> place{w, scope};
  each_access(S == Space::SHARED, m, es * vn, [&](u32 l, auto n) __attribute__((always_inline)) {
    u8* p = place(at[l], n, l);
    for (u32 v = 0; v < vn; v++, p += es) {
      if (I.flags & WIDE) std::memcpy(p, &w.w(r[v])[l], es);
      else std::memcpy(p, &w.u(r[v])[l], es);
    }
    if (strong(A))
      publish(w, sync_key(w, at[l], is_shared(at[l], S)), {scope, false, (I.flags & RELEASES) != 0, false});
  });
}

Fn pick(Space s, bool is_store, bool is_strong, bool constant) {
  auto choose = [&]<Space S>(std::integral_constant<Space, S>) -> Fn {
    if (is_store) return is_strong ? store<S, Access::STRONG_WRITE> : store<S, Access::WRITE>;
    return is_strong ? load<S, Access::STRONG_READ> : load<S, Access::READ>;
  };
  switch (s) {
    case Space::SHARED: return choose(std::integral_constant<Space, Space::SHARED>{});
    case Space::LOCAL: return choose(std::integral_constant<Space, Space::LOCAL>{});
    case Space::GLOBAL:
      if (constant) return load<Space::GLOBAL, Access::CONSTANT_READ>;
      [[fallthrough]];
    case Space::CONST: return choose(std::integral_constant<Space, Space::GLOBAL>{});
    default: return choose(std::integral_constant<Space, Space::GENERIC>{});
  }
}

Class class_of(Space s, bool is_store) {
  switch (s) {
    case Space::SHARED: return is_store ? Class::STORE_SHARED : Class::LOAD_SHARED;
    case Space::LOCAL: return is_store ? Class::STORE_LOCAL : Class::LOAD_LOCAL;
    case Space::CONST:
    case Space::PARAM: return Class::LOAD_CONST;
    default: return is_store ? Class::STORE_GLOBAL : Class::LOAD_GLOBAL;
  }
}

// A kernel parameter at a constant address is a slot. Loading it is a move.
bool load_param(Lower& x, const Operand& reg, const Operand& mem, u32 es, bool is_signed) {
  const Operand& base = mem.parts.at(0);
  if (base.kind != Operand::SYMBOL) return false;
  const Program::Param* p = x.kernel_param(base.symbol);
  if (!p) return false;
  const size_t nbytes = es * std::max<size_t>(1, reg.parts.size());
  if (mem.imm > p->nbytes || nbytes > p->nbytes - mem.imm)
    x.unsupported("load outside of parameter `" + base.symbol + "`");
  x.source.cls = Class::LOAD_CONST;
  auto slot = [&](const Operand& r, u32 k) {
    const u32 width = x.width(r) == 64 ? 64 : 32;
    return x.param_slot(p->offset + static_cast<u32>(mem.imm) + k * es, es, is_signed, width);
  };
  if (reg.kind == Operand::VECTOR) {
    x.ins.ext = x.push(static_cast<u32>(reg.parts.size()));
    for (u32 k = 0; k < reg.parts.size(); k++) {
      const Operand& r = reg.parts[k];
      x.push(r.kind == Operand::SINK ? 1 : x.to(r, x.width(r) == 64 ? "b64" : "b32"));
      x.push(r.kind == Operand::SINK ? 1 : slot(r, k));
      x.push(r.kind == Operand::SINK ? 0 : x.width(r) == 64 ? 8 : 4);
    }
    x.set([](Warp& w, const Ins& I, u32 m) {
      const u32* e = w.ext + I.ext;
      for (u32 k = 0; k < e[0]; k++)
        each_lane(m, [&](u32 l) {
          std::memcpy(w.registers + e[1 + 3 * k] + l * e[3 + 3 * k],
                      w.registers + e[2 + 3 * k] + l * e[3 + 3 * k], e[3 + 3 * k]);
        });
    });
    return true;
  }
  const bool wide = x.width(reg) == 64;
  x.ins.d = x.to(reg, wide ? "b64" : "b32");
  x.ins.a = slot(reg, 0);
  if (wide) x.set(op<u64, u64, u64, u64, LANES(a)>());
  else if (x.width(reg) == 16) x.set(op<u32, u32, u32, u32, LANES(a & 0xffffu)>());
  else x.set(op<u32, u32, u32, u32, LANES(a)>());
  return true;
}

// The width of the registers that a load or store moves `es` bytes from or to.
u32 register_width(Lower& x, const Operand& reg, u32 es) {
  u32 width = 0;
  for (auto& r : reg.kind == Operand::VECTOR ? reg.parts : std::vector<Operand>{reg})
    if (r.kind == Operand::REG) width = x.width(r);
  if (width == 0) width = es == 8 ? 64 : 32;
  if (width == 1 || width < es * 8) x.unsupported("the register is narrower than the type");
  return width;
}

void ld_st(Lower& x) {
  const bool is_store = x.s.words[0] == "st";
  const Operand &mem = x.operand(is_store ? 0 : 1), &reg = x.operand(is_store ? 1 : 0);
  const std::string& t = x.type();
  const u32 es = width_of(t) / 8;
  if (mem.kind != Operand::MEMORY) x.unsupported("expected an address");
  Space s = space_of(x);
  const bool is_signed = t[0] == 's';
  if (s == Space::PARAM) {
    if (!is_store && load_param(x, reg, mem, es, is_signed)) return;
    u32 off, size;  // of a .func, or of the space where arguments of a call are built: local memory
    const Operand& base = mem.parts.at(0);
    if (base.kind == Operand::SYMBOL && !x.local_variable(base.symbol, off, size))
      x.unsupported("unknown parameter `" + base.symbol + "`");
    s = Space::GENERIC;
  }
  if (s == Space::CONST && is_store) x.unsupported("store to constant memory");
  x.source.cls = class_of(s, is_store);
  x.address(mem);
  const u32 vn = reg.kind == Operand::VECTOR ? static_cast<u32>(reg.parts.size()) : 1;
  const u32 want = x.has("v2") ? 2 : x.has("v4") ? 4 : x.has("v8") ? 8 : 1;
  if (vn != want) x.unsupported("vector length and registers disagree");
  if (es * vn > 32) x.unsupported("vector wider than 32 bytes");
  if (es * vn > 16 && s == Space::SHARED) x.unsupported("vector wider than 16 bytes in shared memory");
  x.ins.n = static_cast<u8>(es);
  if (is_signed) x.ins.flags |= SIGNED;
  const u32 width = register_width(x, reg, es);
  if (width == 64) x.ins.flags |= WIDE;
  if (width == 16) x.ins.flags |= NARROW;
  const std::string register_type = width == 64 ? "b64" : "b32";
  x.ins.ext = x.push(vn);
  if (is_store) {
    auto source = [&](const Operand& o) {
      const std::string& wide = t[0] == 'f' ? "f64" : "b64";
      return x.from(o, o.kind != Operand::IMM ? register_type : width == 64 ? wide : es == 2 ? "b16" : t);
    };
    if (reg.kind == Operand::VECTOR) {
      std::vector<u32> slots;
      for (auto& r : reg.parts) slots.push_back(source(r));
      for (u32 v : slots) x.push(v);
    } else {
      x.push(source(reg));
    }
  } else {
    x.push_all(reg, register_type, true);
  }
  const bool is_strong =
      x.has("volatile") || x.has("relaxed") || x.has("acquire") || x.has("release") || x.has("mmio");
  x.ins.c = static_cast<u32>(scope_of(x));
  if (is_strong && !is_store && (s == Space::GLOBAL || s == Space::GENERIC || s == Space::SHARED))
    x.ins.flags |= POLLS;
  if (x.has("acquire")) x.ins.flags |= ACQUIRES;
  if (x.has("release")) x.ins.flags |= RELEASES;
  x.set(pick(s, is_store, is_strong || x.swap_read(), x.has("nc")));
}

// ---- atomics
template <Access A>
u8* place_of_atomic(Warp& w, u64 address, u32 n, u32 lane, Space s, Scope scope) {
  if (s == Space::SHARED) return shared_at<A>(w, static_cast<u32>(address), n, NO_LANE, scope);
  if (s == Space::GLOBAL) return global_at(w, address, n, A, lane, scope);
  return generic_at<A>(w, address, n, lane, scope);
}

// ext: registers of b (vector length first), then c. n: bytes of an element. imm: address offset. c:
// operation | type << 8 | space << 16 | has destination << 24 | scope << 25
void atomic(Warp& w, const Ins& I, u32 m) {
  u64 at[32];
  addresses(w, I, at);
  const Operation o = static_cast<Operation>(I.c & 255);
  const ValueType t = static_cast<ValueType>(I.c >> 8 & 255);
  const Space s = static_cast<Space>(I.c >> 16 & 255);
  const bool returns = I.c >> 24 & 1;
  const Scope scope = static_cast<Scope>(I.c >> 25);
  const Strength how{scope, (I.flags & ACQUIRES) != 0, (I.flags & RELEASES) != 0, true};
  const u32* e = w.ext + I.ext;
  const u32 vn = e[0], es = I.n;
  if (s == Space::SHARED) count<Space::SHARED>(w, at, m, es * vn, true);
  else if (s == Space::GLOBAL) count<Space::GLOBAL>(w, at, m, es * vn, true);
  else count<Space::GENERIC>(w, at, m, es * vn, true);
  each_lane(m, [&](u32 l) {
    const bool shared = is_shared(at[l], s);
    u8* p = I.flags & SETS ? place_of_atomic<Access::STRONG_WRITE>(w, at[l], es * vn, l, s, scope)
                           : place_of_atomic<Access::ATOMIC>(w, at[l], es * vn, l, s, scope);
    const u64 key = sync_key(w, at[l], shared);
    publish(w, key, how);
    {
      std::unique_lock<std::mutex> lock;
      if (!shared && w.worker->launch->config.threads > 1)
        lock = std::unique_lock(w.worker->launch->atomic_mutex[at[l] >> 4 & 63]);
      for (u32 v = 0; v < vn; v++, p += es) {
        u64 old = 0;
        std::memcpy(&old, p, es);
        const u64 b = es == 8 ? w.w(e[1 + v])[l] : w.u(e[1 + v])[l];
        const u64 c = o == CAS ? (es == 8 ? w.w(e[1 + vn])[l] : w.u(e[1 + vn])[l]) : 0;
        const u64 mask = es == 8 ? ~u64(0) : (u64(1) << (8 * es)) - 1;
        const u64 now = reduce_value(o, t, old, b & mask, c & mask);
        std::memcpy(p, &now, es);
        if (returns) {
          const u32 d = e[2 + vn + v];
          if (es == 8) w.w(d)[l] = old;
          else w.u(d)[l] = static_cast<u32>(old);
        }
      }
    }
    if (returns) acquire(w, key, how);
  });
  if (returns) yield(w);
}

void atom_red(Lower& x) {
  const bool red = x.s.words[0] == "red";
  const size_t base = red ? 0 : 1;
  const std::string& t = x.type();
  Operation o = EXCH;
  bool found = false;
  for (u8 i = 0; i < 10; i++)
    if (x.has(OPERATIONS[i])) o = static_cast<Operation>(i), found = true;
  if (!found) x.unsupported("unknown operation");
  const u32 width = width_of(t), es = width / 8;
  const ValueType type = value_type(t);
  if (width != 16 && width != 32 && width != 64) x.unsupported("unsupported type");
  const Space s = space_of(x);
  x.address(x.operand(base));
  x.ins.n = static_cast<u8>(es);
  const Operand& b = x.operand(base + 1);
  const u32 vn = b.kind == Operand::VECTOR ? static_cast<u32>(b.parts.size()) : 1;
  if (es * vn > 16) x.unsupported("vector wider than 16 bytes");
  std::vector<u32> words{vn};
  auto each = [&](const Operand& v, bool destination) {
    if (v.kind == Operand::VECTOR) {
      if (v.parts.size() != vn) x.unsupported("vector lengths differ");
      for (auto& p : v.parts) words.push_back(destination ? x.to(p, t) : x.from(p, t));
    } else {
      words.push_back(destination ? x.to(v, t) : x.from(v, t));
    }
  };
  each(b, false);
  words.push_back(o == CAS ? x.from(base + 2, t) : 0);
  if (!red) each(x.operand(0), true);
  x.ins.ext = x.here();
  for (u32 v : words) x.push(v);
  x.ins.c = static_cast<u32>(o) | static_cast<u32>(type) << 8 | static_cast<u32>(s) << 16 |
            (red ? 0u : 1u) << 24 | static_cast<u32>(scope_of(x)) << 25;
  if (x.has("release") || x.has("acq_rel")) x.ins.flags |= RELEASES;
  if (x.has("acquire") || x.has("acq_rel")) x.ins.flags |= ACQUIRES;
  if (o == EXCH && x.result_unread()) x.ins.flags |= SETS;
  x.set(atomic);
}

void isspacep(Lower& x) {
  x.ins.d = x.predicate_to(x.operand(0));
  x.ins.a = x.from(1, "u64");
  const std::string& t = x.type();
  x.ins.n = t.starts_with("shared") ? 1 : t == "local" ? 2 : t == "global" ? 0 : 3;
  x.set([](Warp& w, const Ins& I, u32 m) {
    u32 r = 0;
    each_lane(m, [&](u32 l) {
      const u64 a = w.w(I.a)[l], window = a & WINDOW_MASK;
      bool is = I.n == 1 ? window == SHARED_WINDOW : I.n == 2 ? window == LOCAL_WINDOW : window == 0;
      if (is && (I.n == 0 || I.n == 3)) {  // const and param are told apart by their region
        bool constant = false;
        for (auto& g : w.worker->launch->regions)
          if (a - g.address < g.nbytes) constant = g.space == Space::CONST || g.space == Space::PARAM;
        is = constant == (I.n == 3);
      }
      r |= static_cast<u32>(is) << l;
    });
    w.set_predicate(I.d, m, r);
  });
}
void nop(Lower& x) {
  x.set([](Warp&, const Ins&, u32) {});
}

#define SCOPES ".cta|cluster|gpu|sys"
#define SPACES ".global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
#define CACHES                                                                            \
  "?ca|cg|cs|lu|cv|wb|wt|nc "                                                             \
  "?L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate " \
  "?L2::evict_first|L2::evict_last|L2::evict_normal ?L2::cache_hint ?L2::64B|L2::128B|L2::256B"
#define TYPES ".b8|u8|s8|b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64|f16|bf16|f16x2|bf16x2"
const Row ROWS[] = {
    {"ld ?weak|volatile|relaxed|acquire|mmio ?cta|cluster|gpu|sys "
     "?global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func " CACHES
     " ?v2|v4|v8 " TYPES,
     Class::LOAD_GLOBAL, 1, ld_st},
    {"ldu ?global ?v2|v4 " TYPES, Class::LOAD_GLOBAL, 1, ld_st},
    {"st ?weak|volatile|relaxed|release|mmio ?cta|cluster|gpu|sys "
     "?global|shared|shared::cta|shared::cluster|local|param|param::func " CACHES " ?v2|v4|v8 " TYPES,
     Class::STORE_GLOBAL, 0, ld_st},
    {"atom ?relaxed|acquire|release|acq_rel ?cta|cluster|gpu|sys ?global|shared|shared::cta|shared::cluster "
     ".add|min|max|inc|dec|and|or|xor|exch|cas ?noftz ?L2::cache_hint ?v2|v4|v8 " TYPES,
     Class::ATOMIC, 1, atom_red},
    {"red ?relaxed|release ?cta|cluster|gpu|sys ?global|shared|shared::cta|shared::cluster "
     ".add|min|max|inc|dec|and|or|xor ?noftz ?L2::cache_hint ?v2|v4|v8 " TYPES,
     Class::ATOMIC, 0, atom_red},
    {"isspacep .global|shared|shared::cta|shared::cluster|local|const|param|param::entry", Class::INT, 1,
     isspacep},
    {"prefetch ?global|local|const|param ?L1|L2 ?L2::evict_last|L2::evict_normal ?tensormap", Class::SPECIAL,
     0, nop},
    {"prefetchu .L1", Class::SPECIAL, 0, nop},
    {"discard ?global .L2", Class::SPECIAL, 0, nop, "ignored"},
    {"applypriority ?global .L2::evict_normal", Class::SPECIAL, 0, nop, "ignored"},
    {"createpolicy .fractional|range ?global "
     ".L2::evict_first|L2::evict_last|L2::evict_normal|L2::evict_unchanged "
     "?L2::evict_first|L2::evict_unchanged .b64",
     Class::SPECIAL, 1,
     [](Lower& x) {
       x.ins.d = x.to(0, "b64"), x.ins.a = x.constant(64, 0);
       x.set(op<u64, u64, u64, u64, LANES(a)>());
     },
     "policies have no effect"},
};
}  // namespace

extern const std::span<const Row> memory_rows;
const std::span<const Row> memory_rows{ROWS};
}  // namespace ptx

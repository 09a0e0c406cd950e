// The instructions for bulk copies (cp.async.bulk, st.async, red.async) and for addresses in a cluster.
#include <algorithm>

#include "bulk.hpp"

namespace ptx {
namespace {

// ---- cp.async.bulk
enum Form : u8 { GLOBAL_TO_SHARED, SHARED_TO_SHARED, SHARED_TO_GLOBAL };

// What one thread copies. The whole source and target are checked here, also where the bytes move later.
std::shared_ptr<BulkCopy> make_copy(Warp& w, Form form, u64 from, u64 to, u32 size, u32 lane) {
  auto q = std::make_shared<BulkCopy>();
  q->lane = lane, q->pc = w.pc, q->nbytes = size;
  q->to_shared = form != SHARED_TO_GLOBAL, q->from_shared = form != GLOBAL_TO_SHARED;
  if (q->to_shared) shared_range(w, static_cast<u32>(to), size);
  if (q->from_shared) shared_range(w, static_cast<u32>(from), size);
  if (!q->from_shared) global_range(w, from, size, false, lane);
  if (!q->to_shared) global_range(w, to, size, true, lane);
  q->pieces.push_back({q->from_shared ? static_cast<u32>(from) : from,
                       q->to_shared ? static_cast<u32>(to) : to, size, false});
  if (q->from_shared) read_sources(w, *q);
  return q;
}

// ext: form, to (3), from (3), size, mbarrier (3), slot of the multicast mask + 1, reduction + 1, element
void bulk(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const Form form = static_cast<Form>(e[0]);
  each_lane(m, [&](u32 l) {
    const u64 to = pushed_address(w, e + 1, l), from = pushed_address(w, e + 4, l);
    const u32 size = w.u(e[7])[l];
    require(size % 16 == 0 && size > 0, "cp.async.bulk: the size must be a positive multiple of 16", l);
    require(to % 16 == 0 && from % 16 == 0, "cp.async.bulk: addresses must be multiples of 16", l);
    auto make = [&](u64 target) {
      auto q = make_copy(w, form, from, target, size, l);
      q->reduction = static_cast<int>(e[12]) - 1, q->element = e[13];
      return q;
    };
    if (form == SHARED_TO_GLOBAL) launch_to_global(w, make(to));
    else issue_to_shared(w, to, static_cast<u32>(pushed_address(w, e + 8, l)), e[11], l, make);
  });
}

void make_bulk(Lower& x) {
  const auto& words = x.s.words;
  size_t dst = 0;
  for (size_t i = 2; i < words.size() && !dst; i++)
    if (words[i] == "global" || words[i].starts_with("shared")) dst = i;
  if (!dst || dst + 1 >= words.size()) x.unsupported("unknown form");
  const bool to_shared = words[dst].starts_with("shared"), from_shared = words[dst + 1].starts_with("shared");
  const Form form = !to_shared ? SHARED_TO_GLOBAL : from_shared ? SHARED_TO_SHARED : GLOBAL_TO_SHARED;
  const int reduction = reduction_of(x);
  const std::string& t = x.type();
  x.ins.ext = x.push(form);
  push_address(x, x.operand(0));
  push_address(x, x.operand(1));
  x.push(x.from(2, "u32"));
  if (to_shared) push_address(x, x.operand(3));
  else x.push(0), x.push(0), x.push(0);
  x.push(x.has("multicast::cluster") ? x.from(4, "b16") + 1 : 0);
  x.push(static_cast<u32>(reduction + 1));
  x.push(reduction < 0 ? 0 : value_type(t) | std::max(1u, width_of(t) / 8) << 8);
  if (reduction >= 0 && width_of(t) < 16) x.unsupported("unsupported type");
  x.set(bulk);
}

void commit(Lower& x) {
  x.set([](Warp& w, const Ins&, u32 m) {
    for (u32 l = 0; l < 32; l++) w.bulk_group[l] += m >> l & 1;
  });
}
void wait(Lower& x) {
  x.ins.imm = static_cast<i32>(std::min<u64>(x.immediate(0), 1 << 20));
  x.ins.n = x.has("read");
  x.set([](Warp& w, const Ins& I, u32 m) {
    std::erase_if(w.bulk, [&](auto& q) {
      if (!(m >> q->lane & 1) || q->group + static_cast<u32>(I.imm) >= w.bulk_group[q->lane]) return false;
      if (I.n) finish_read(w, *q);
      else finish_store(w, *q);
      return !I.n;
    });
  });
}

// ---- st.async, red.async
// ext: address (3), mbarrier (3), vector length, element bytes, registers..., reduction + 1, element
void remote_store(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const u32 vn = e[6], es = e[7];
  each_lane(m, [&](u32 l) {
    auto q = std::make_shared<BulkCopy>();
    const u32 to = static_cast<u32>(pushed_address(w, e, l));
    q->lane = l, q->pc = w.pc, q->nbytes = vn * es, q->to_shared = true;
    q->reduction = static_cast<int>(e[8 + vn]) - 1, q->element = e[9 + vn];
    require(to % (vn * es) == 0, "st.async: misaligned address", l);
    shared_range(w, to, vn * es);
    for (u32 k = 0; k < vn; k++) {
      const u64 v = es == 8 ? w.w(e[8 + k])[l] : w.u(e[8 + k])[l];
      q->immediate.insert(q->immediate.end(), reinterpret_cast<const u8*>(&v),
                          reinterpret_cast<const u8*>(&v) + es);
    }
    q->pieces.push_back({0, to, vn * es, false});
    launch_to_shared(w, q, static_cast<u32>(pushed_address(w, e + 3, l)), false);
  });
  if (w.worker->launch->race) w.clock[w.agent]++;
}
void make_remote_store(Lower& x) {
  const std::string& t = x.type();
  const Operand& b = x.operand(1);
  const u32 vn = b.kind == Operand::VECTOR ? static_cast<u32>(b.parts.size()) : 1, es = width_of(t) / 8;
  if (es < 4) x.unsupported("unsupported type");
  x.ins.ext = push_address(x, x.operand(0));
  push_address(x, x.operand(2));
  x.push(vn), x.push(es);
  x.push_all(b, t, false);
  const int reduction = reduction_of(x);
  x.push(static_cast<u32>(reduction + 1));
  x.push(value_type(t) | es << 8);
  x.set(remote_store);
}

// ---- addresses in the cluster
// d = the address a in the CTA of rank b. Compilers move it out of the branch that keeps a rank within the
// cluster: one outside it is an address of no CTA, which faults where it is used.
template <class T, u64 KEPT>
void mapa_lanes(Warp& w, const Ins& I, u32 m) {
  T* d = reinterpret_cast<T*>(w.registers + I.d);
  const T* a = reinterpret_cast<const T*>(w.registers + I.a);
  each_lane(m, [&](u32 l) {
    const u32 rank = std::min(w.u(I.b)[l], NO_RANK);
    d[l] = (a[l] & static_cast<T>(KEPT)) | rank << RANK_SHIFT;
  });
}
void mapa(Lower& x) {
  const bool wide = width_of(x.type()) == 64;
  const std::string t = wide ? "b64" : "b32";
  x.ins.d = x.to(0, t), x.ins.a = x.from(1, t), x.ins.b = x.from(2, "u32");
  x.set(wide ? mapa_lanes < u64, WINDOW_MASK | 0xffffff > : mapa_lanes<u32, 0xffffff>);
}
void getctarank(Lower& x) {
  const bool wide = width_of(x.type()) == 64;
  x.ins.d = x.to(0, "u32"), x.ins.a = x.from(1, wide ? "b64" : "b32");
  wide ? x.set(op<u32, u64, u32, u32, LANES(u32(a) >> RANK_SHIFT)>())
       : x.set(op<u32, u32, u32, u32, LANES(a >> RANK_SHIFT)>());
}
void nop(Lower& x) {
  x.set([](Warp&, const Ins&, u32) {});
}

#define HINT "?L2::cache_hint"
const Row ROWS[] = {
    {"cp .async .bulk .shared::cluster|shared::cta .global .mbarrier::complete_tx::bytes "
     "?multicast::cluster " HINT,
     Class::ASYNC_COPY, 0, make_bulk},
    {"cp .async .bulk .shared::cluster .shared::cta .mbarrier::complete_tx::bytes", Class::ASYNC_COPY, 0,
     make_bulk},
    {"cp .async .bulk .global .shared::cta .bulk_group " HINT, Class::ASYNC_COPY, 0, make_bulk},
    {"cp .reduce .async .bulk .global .shared::cta .bulk_group " HINT
     " .add|min|max|inc|dec|and|or|xor ?noftz .u32|s32|u64|s64|b32|b64|f32|f64|f16|bf16",
     Class::ASYNC_COPY, 0, make_bulk},
    {"cp .reduce .async .bulk .shared::cluster .shared::cta .mbarrier::complete_tx::bytes "
     ".add|min|max|inc|dec|and|or|xor .u32|s32|u64|b32",
     Class::ASYNC_COPY, 0, make_bulk},
    {"cp .async .bulk .tensor .1d|2d|3d|4d|5d .shared::cluster|shared::cta .global ?tile "
     ".mbarrier::complete_tx::bytes ?multicast::cluster " HINT,
     Class::ASYNC_COPY, 0, make_tensor, "tile mode, element strides of 1"},
    {"cp .async .bulk .tensor .1d|2d|3d|4d|5d .global .shared::cta ?tile .bulk_group " HINT,
     Class::ASYNC_COPY, 0, make_tensor, "tile mode, element strides of 1"},
    {"cp .reduce .async .bulk .tensor .1d|2d|3d|4d|5d .global .shared::cta .add|min|max|inc|dec|and|or|xor "
     "?tile .bulk_group " HINT,
     Class::ASYNC_COPY, 0, make_tensor, "tile mode; integers count as unsigned"},
    {"cp .async .bulk .commit_group", Class::ASYNC_COPY, 0, commit},
    {"cp .async .bulk .wait_group ?read", Class::ASYNC_COPY, 0, wait},
    {"cp .async .bulk .prefetch .L2 .global " HINT, Class::SPECIAL, 0, nop},
    {"cp .async .bulk .prefetch .tensor .1d|2d|3d|4d|5d .L2 .global ?tile " HINT, Class::SPECIAL, 0, nop},
    {"st .async ?weak ?shared::cluster .mbarrier::complete_tx::bytes ?shared::cluster ?v2|v4 "
     ".b32|b64|u32|u64|s32|s64|f32|f64",
     Class::STORE_SHARED, 0, make_remote_store},
    {"red .async ?relaxed ?cluster ?shared::cluster .mbarrier::complete_tx::bytes ?shared::cluster "
     ".add|min|max|inc|dec|and|or|xor .u32|s32|u64|b32",
     Class::ATOMIC, 0, make_remote_store},
    {"mapa ?shared::cluster .u32|u64", Class::INT, 1, mapa},
    {"getctarank ?shared::cluster .u32|u64", Class::INT, 1, getctarank},
};
}  // namespace

// ---- shared with the tensor copies
void require(bool ok, const char* what, u32 lane) {
  if (!ok) throw Fault(EVO_PTX_MISALIGNED, what, static_cast<int>(lane));
}

void shared_range(Warp& w, u32 address, u32 n) {
  Cta& c = cta_of(w, address);
  const u32 o = address - c.base;
  if (u64(o) + n > c.shared_bytes) bad_shared(w, EVO_PTX_OUT_OF_BOUNDS, address, n, "is out of bounds");
}

u32 push_address(Lower& x, const Operand& o) {
  const Ins keep = x.ins;
  x.ins.flags = 0;
  x.address(o);
  const u32 at = x.push(x.ins.a);
  x.push(x.ins.flags & ADDRESS_WIDE ? 1 : 0);
  x.push(static_cast<u32>(x.ins.imm));
  x.ins = keep;
  return at;
}

int reduction_of(Lower& x) {
  if (x.word(1) != "reduce" && x.s.words[0] != "red") return -1;
  for (u8 i = 0; i < 8; i++)
    if (x.has(OPERATIONS[i])) return i;
  x.unsupported("unknown reduction");
}

extern const std::span<const Row> bulk_rows;
const std::span<const Row> bulk_rows{ROWS};
}  // namespace ptx

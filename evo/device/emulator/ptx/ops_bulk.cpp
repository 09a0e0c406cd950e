// Bulk copies (cp.async.bulk, TMA tensors, st.async, red.async): issue, landing, and the mbarriers they
// complete on.
//
// A copy into shared memory counts as a write of the agent of its mbarrier from issue on, so whoever reads
// without having waited for that mbarrier races with it. Its bytes land at once, or (late copies) when
// somebody asks for the phase.
#include <algorithm>

#include "async.hpp"
#include "hopper.hpp"
#include "lanes.hpp"
#include "tensor_map.hpp"

namespace ptx {

Mbarrier& mbarrier_at(Warp& w, u32 address, u32 lane) {
  Cta& c = cta_of(w, address);
  const u32 o = shared_offset(w, c, address, 8);
  const u16 k = c.mbarrier_at.empty() ? 0 : c.mbarrier_at[o >> 3];
  if (!k) {
    Fault f(EVO_PTX_SYNC, "no mbarrier has been initialised at shared address " + hex(address),
            static_cast<int>(lane));
    throw f.at(Space::SHARED, address, 8, "shared memory", o);
  }
  Mbarrier& b = *c.mbarriers[k - 1u];
  const bool announced = b.announced && w.cluster_passed >= b.announced;
  if (w.worker->launch->race && b.init_clock > w.clock[b.init_agent] && b.init_agent != w.agent &&
      !announced) {
    Fault f(EVO_PTX_RACE, "use of an mbarrier not ordered after its mbarrier.init", static_cast<int>(lane));
    throw f.at(Space::SHARED, address, 8, "shared memory", o)
        .against(agent_name(*w.cta->cluster, b.init_agent), b.init_pc);
  }
  return b;
}

void advance(Cluster& c, Mbarrier& b) {
  c.progress = true;
  if (b.pending != 0 || b.tx != 0) return;
  b.phase++;
  b.pending = b.expected;
  b.done = b.current;
}

namespace {

void set_init(Cta& c, u32 offset, u32 n, bool known) {
  for (u32 k = 0; k < n;) {
    const u32 at = (offset + k) & 15, step = std::min(16 - at, n - k);
    const u16 mask = static_cast<u16>(((1u << step) - 1) << at);
    u16& word = c.shared_init[(offset + k) >> 4];
    word = known ? word | mask : word & static_cast<u16>(~mask);
    k += step;
  }
}

// The bytes move now.
void transfer(Warp& w, BulkCopy& q) {
  const Launch& L = *w.worker->launch;
  std::vector<Cta>& ctas = w.cta->cluster->ctas;
  auto shared = [&](u64 a) -> u8* {
    Cta& c = ctas[static_cast<u32>(a) >> RANK_SHIFT];
    return &c.shared[static_cast<u32>(a) - c.base];
  };
  for (auto& p : q.pieces) {
    if (p.fill && !q.to_shared) continue;
    u8* to = q.to_shared ? shared(p.to)
                         : global_at(w, p.to, 1, q.reduction < 0 ? Access::WRITE : Access::ATOMIC, q.lane);
    if (!q.to_shared)  // bounds and the shadow of all of it, in aligned steps
      for (u32 k = 0; k < p.nbytes;) {
        const u32 n = std::min<u32>({16, p.nbytes - k, 1u << std::countr_zero((p.to + k) | 16)});
        const u32 step = std::bit_floor(n);
        global_at(w, p.to + k, step, q.reduction < 0 ? Access::WRITE : Access::ATOMIC, q.lane);
        k += step;
      }
    if (p.fill) {
      for (u32 k = 0; k < p.nbytes; k++) to[k] = static_cast<u8>(q.fill_value >> (8 * (k & 3)));
    } else {
      const u8* from;
      if (!q.immediate.empty()) from = q.immediate.data() + p.from;
      else if (q.from_shared) from = shared(p.from);
      else from = reinterpret_cast<const u8*>(p.from);
      if (q.reduction < 0) {
        std::memcpy(to, from, p.nbytes);
      } else {
        const u32 size = q.element >> 8;
        std::unique_lock<std::mutex> lock;
        if (!q.to_shared && L.config.threads > 1)
          lock = std::unique_lock(w.worker->launch->atomic_mutex[p.to >> 4 & 63]);
        for (u32 k = 0; k + size <= p.nbytes; k += size) {
          u64 a = 0, b = 0;
          std::memcpy(&a, to + k, size);
          std::memcpy(&b, from + k, size);
          const u64 r = reduce_value(static_cast<Operation>(q.reduction),
                                     static_cast<ValueType>(q.element & 255), a, b, 0);
          std::memcpy(to + k, &r, size);
        }
      }
    }
    if (q.to_shared) {
      Cta& c = ctas[static_cast<u32>(p.to) >> RANK_SHIFT];
      const u32 o = static_cast<u32>(p.to) - c.base;
      set_init(c, o, p.nbytes, true);
    }
  }
  q.landed = true;
}

// An asynchronous read of shared memory spans issue to wait: nothing unordered with the issue may have
// written since, and what writes later must be ordered after the wait.
void read_span(Warp& w, Cta& c, u32 offset, u32 n, const u32* issue_clock) {
  for (u32 i = offset >> 2; i < (offset + n) >> 2; i++) {
    const Cell& cell = c.cells[i];
    if (cell.clock > issue_clock[cell.agent])
      shared_race(w, c, offset, n, "written while an asynchronous operation, not waited for, reads it",
                  cell.agent, cell.pc);
  }
  race_read(w, c, offset, n);
}

void finish_store(Warp& w, BulkCopy& q) {
  if (q.from_shared && w.worker->launch->race)
    for (auto& p : q.pieces) {
      Cta& c = cta_of(w, static_cast<u32>(p.from));
      if (!p.fill) read_span(w, c, static_cast<u32>(p.from) - c.base, p.nbytes, q.clock.data());
    }
  if (!q.landed) transfer(w, q);
}

void complete(Warp& w, Mbarrier& b, BulkCopy& q) {
  if (q.warp) {  // cp.async.mbarrier.arrive: the thread's copies up to here, then its arrival
    u32 before[32] = {};
    before[q.lane] = q.group + 1;
    Warp& owner = *q.warp;
    const std::vector<u32> now(owner.clock, owner.clock + w.cta->cluster->clock_words);
    std::copy(q.clock.begin(), q.clock.end(), owner.clock);  // the copies count as of the arrival
    land_copies(owner, 1u << q.lane, before);
    std::copy(now.begin(), now.end(), owner.clock);
    join(b.current.data(), q.clock.data(), w.cta->cluster->clock_words);
    b.pending--;
    advance(*w.cta->cluster, b);
    return;
  }
  if (!q.landed) transfer(w, q);
  b.tx -= q.nbytes;
  if (q.clock_value) b.current[b.agent] = std::max(b.current[b.agent], q.clock_value);
  if (q.from_shared || !q.immediate.empty())
    join(b.current.data(), q.clock.data(), w.cta->cluster->clock_words);
  advance(*w.cta->cluster, b);
}

u32 slot32(Warp& w, u32 slot, bool wide, u32 l) {
  return wide ? static_cast<u32>(w.w(slot)[l]) : w.u(slot)[l];
}

// A copy into shared memory is on its way: check, mark, and land it at once unless copies are late.
void launch_to_shared(Warp& w, std::shared_ptr<BulkCopy> q, u32 barrier_address, bool proxy) {
  Cluster& cl = *w.cta->cluster;
  const Launch& L = *w.worker->launch;
  Mbarrier& b = mbarrier_at(w, barrier_address, q->lane);
  if (L.race && proxy) {
    const u32 half = cl.clock_words / 2;
    if (!b.fenced && b.init_clock > w.clock[half + b.init_agent]) {
      Fault f(EVO_PTX_PROXY,
              "an asynchronous copy completes on an mbarrier whose initialisation the async proxy may not "
              "see: fence.mbarrier_init (or fence.proxy.async) is missing after mbarrier.init",
              static_cast<int>(q->lane));
      throw f.against(agent_name(cl, b.init_agent), b.init_pc);
    }
  }
  if (L.race) {
    const u32 t = q->clock_value = ++cl.agent_clock[b.agent];
    b.copier = &w, b.copy_lane = q->lane, b.copy_pc = w.pc, b.copy_clock = t;
    for (auto& p : q->pieces) {
      Cta& c = cta_of(w, static_cast<u32>(p.to));
      const u32 o = static_cast<u32>(p.to) - c.base;
      for (u32 k = 0; k < p.nbytes;) {
        const u32 n = std::min<u32>(16 - ((o + k) & 15), p.nbytes - k);
        if (proxy)
          check_proxy(w, c, o + k, n,
                      "the async proxy overwrites what was written through the generic proxy without a "
                      "fence.proxy.async between");
        race_write(w, c, o + k, n, b.agent, t, CELL_ASYNC_PROXY);
        k += n;
      }
    }
  }
  for (auto& p : q->pieces) {
    Cta& c = cta_of(w, static_cast<u32>(p.to));
    const u32 o = static_cast<u32>(p.to) - c.base;
    if (q->reduction < 0) set_init(c, o, p.nbytes, false);
  }
  q->clock.assign(w.clock, w.clock + cl.clock_words);
  w.worker->totals.async_bytes += q->nbytes;
  b.in_flight.push_back(q);
  if (!L.late_copies) land(w, b);
}

void read_sources(Warp& w, BulkCopy& q) {  // checks of the source of a copy that reads shared memory
  const Launch& L = *w.worker->launch;
  for (auto& p : q.pieces) {
    if (p.fill) continue;
    Cta& c = cta_of(w, static_cast<u32>(p.from));
    const u32 o = static_cast<u32>(p.from) - c.base;
    if (L.race) {
      race_read(w, c, o, p.nbytes);
      check_proxy(w, c, o, p.nbytes,
                  "the async proxy reads what was written through the generic proxy without a "
                  "fence.proxy.async between");
    }
    for (u32 k = 0; k < p.nbytes && L.init; k++)
      if (!(c.shared_init[(o + k) >> 4] >> ((o + k) & 15) & 1))
        uninitialised_shared(w, static_cast<u32>(p.from) + k, 1);
  }
}

void require(bool ok, const char* what, u32 lane) {
  if (!ok) throw Fault(EVO_PTX_MISALIGNED, what, static_cast<int>(lane));
}
void shared_range(Warp& w, u32 address, u32 n) {
  Cta& c = cta_of(w, address);
  const u32 o = address - c.base;
  if (u64(o) + n > c.shared_bytes) bad_shared(w, address, n, "out of bounds");
}

// ---- cp.async.bulk
enum Form : u8 { GLOBAL_TO_SHARED, SHARED_TO_SHARED, SHARED_TO_GLOBAL };
// ext: form, to, to wide, to offset, from, from wide, from offset, size, barrier, wide, offset, multicast
// mask + 1, reduction (+1), element
void bulk(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const Form form = static_cast<Form>(e[0]);
  Cluster& cl = *w.cta->cluster;
  each_lane(m, [&](u32 l) {
    const u64 to =
        (e[2] ? w.w(e[1])[l] : w.u(e[1])[l]) + static_cast<u64>(static_cast<i64>(static_cast<i32>(e[3])));
    const u64 from =
        (e[5] ? w.w(e[4])[l] : w.u(e[4])[l]) + static_cast<u64>(static_cast<i64>(static_cast<i32>(e[6])));
    const u32 size = w.u(e[7])[l];
    require(size % 16 == 0 && size > 0, "cp.async.bulk: the size must be a positive multiple of 16", l);
    require(to % 16 == 0 && from % 16 == 0, "cp.async.bulk: addresses must be multiples of 16", l);
    auto make = [&](u64 target) {
      auto q = std::make_shared<BulkCopy>();
      q->lane = l, q->pc = w.pc, q->nbytes = size;
      q->to_shared = form != SHARED_TO_GLOBAL, q->from_shared = form != GLOBAL_TO_SHARED;
      q->reduction = static_cast<int>(e[12]) - 1, q->element = e[13];
      if (q->to_shared) shared_range(w, static_cast<u32>(target), size);
      if (q->from_shared) shared_range(w, static_cast<u32>(from), size);
      if (!q->from_shared)
        for (u32 k = 0; k < size; k += 16) global_at(w, from + k, 16, Access::READ, l);
      if (!q->to_shared)
        for (u32 k = 0; k < size; k += 16) global_slow(w, to + k, 16, Access::STRONG_READ);
      q->pieces.push_back({q->from_shared ? static_cast<u32>(from) : from,
                           q->to_shared ? static_cast<u32>(target) : target, size, false});
      return q;
    };
    if (form == SHARED_TO_GLOBAL) {
      auto q = make(to);
      read_sources(w, *q);
      q->clock.assign(w.clock, w.clock + cl.clock_words);
      q->group = w.bulk_group[l];
      w.worker->totals.async_bytes += size;
      if (!w.worker->launch->late_copies) transfer(w, *q);
      w.bulk.push_back(q);
      return;
    }
    const u32 barrier = slot32(w, e[8], e[9], l) + e[10];
    if (!e[11]) {
      auto q = make(to);
      if (q->from_shared) read_sources(w, *q);
      launch_to_shared(w, q, barrier, true);
      return;
    }
    const u32 mask = w.u(e[11] - 1)[l] & 0xffff;
    if (mask >> cl.ctas.size())
      throw Fault(EVO_PTX_BAD_OPERAND, "multicast mask " + hex(mask) + " names CTAs outside the cluster",
                  static_cast<int>(l));
    each_lane(mask, [&](u32 r) {
      launch_to_shared(w, make((to & ~u64(RANK_MASK)) | r << RANK_SHIFT),
                       (barrier & ~RANK_MASK) | r << RANK_SHIFT, true);
    });
  });
}

u32 push_address(Lower& x, const Operand& o) {  // slot, wide, offset
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

// ---- tensors
// ext: 0 load / 1 store, shared address (slot, wide, offset), map (slot, wide, offset), rank, coordinates[5],
// barrier (slot, wide, offset), multicast mask + 1, reduction + 1
void tensor(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const bool is_store = e[0];
  Cluster& cl = *w.cta->cluster;
  each_lane(m, [&](u32 l) {
    const u64 map_address =
        (e[5] ? w.w(e[4])[l] : w.u(e[4])[l]) + static_cast<u64>(static_cast<i64>(static_cast<i32>(e[6])));
    require(map_address % 64 == 0, "the address of a tensor map must be a multiple of 64", l);
    u8 raw[128];
    for (u32 k = 0; k < 128; k += 16)
      std::memcpy(raw + k, generic_at<Access::READ>(w, map_address + k, 16, l), 16);
    TensorMap map;
    if (!decode_tensor_map(raw, map))
      throw Fault(EVO_PTX_BAD_OPERAND, "the operand at " + hex(map_address) + " is not a tensor map",
                  static_cast<int>(l));
    const u32 rank = e[7];
    if (rank != map.rank)
      throw Fault(EVO_PTX_BAD_OPERAND,
                  "the instruction has " + std::to_string(rank) + " coordinates, the tensor map " +
                      std::to_string(map.rank) + " dimensions",
                  static_cast<int>(l));
    i64 origin[5] = {};
    u64 rows = 1;
    for (u32 i = 0; i < rank; i++) {
      origin[i] = static_cast<i32>(w.u(e[8 + i])[l]);
      if (map.element_strides[i] != 1)
        throw Fault(EVO_PTX_BAD_OPERAND, "tensor maps with element strides are not supported",
                    static_cast<int>(l));
      // An H200 loads and prefetches from there (zeros), but a store is an illegal instruction, swizzled or
      // not.
      if (is_store && !e[17] && origin[i] < 0)
        throw Fault(EVO_PTX_BAD_OPERAND,
                    "coordinate " + std::to_string(i) +
                        " of a tensor store is negative: " + std::to_string(origin[i]),
                    static_cast<int>(l));
      if (i) rows *= map.box[i];
    }
    const u32 es = map.element_bytes, inner = map.box[0] * es;
    const u64 total = rows * inner;
    const u32 base = slot32(w, e[1], e[2], l) + e[3];
    if (total > MAX_SHARED)
      throw Fault(EVO_PTX_BAD_OPERAND, "the box of the tensor map does not fit into shared memory",
                  static_cast<int>(l));
    require(base % 128 == 0, "the shared address of a tensor copy must be a multiple of 128", l);
    shared_range(w, base, static_cast<u32>(total));
    const u32 swizzle = map.swizzle == 0 ? 0 : (1u << map.swizzle) - 1;

    auto make = [&](u32 target) {
      auto q = std::make_shared<BulkCopy>();
      q->lane = l, q->pc = w.pc, q->nbytes = static_cast<u32>(total);
      q->to_shared = !is_store, q->from_shared = is_store;
      q->reduction = static_cast<int>(e[17]) - 1;
      if (q->reduction >= 0) {
        const ValueType t = es == 2        ? (map.is_bf16 ? T_BF16 : T_F16)
                            : es == 4      ? (map.is_float ? T_F32 : T_U32)
                            : map.is_float ? T_F64
                                           : T_U64;
        q->element = t | es << 8;
      }
      if (map.nan_fill && map.is_float)
        q->fill_value = es == 2 ? (map.is_bf16 ? 0x7fff7fffu : 0x7fff7fffu) : 0x7fffffffu;
      u32 index[5] = {};
      for (u64 r = 0; r < rows; r++) {
        bool inside = true;
        u64 address = map.address;
        for (u32 i = 1; i < rank; i++) {
          const i64 c = origin[i] + index[i];
          inside &= c >= 0 && c < static_cast<i64>(map.shape[i]);
          address += static_cast<u64>(c) * map.strides[i - 1];
        }
        // Runs of at most 16 bytes (what the swizzle moves as one), cut where the tensor begins and ends.
        for (u32 at = 0; at < inner;) {
          const i64 x = origin[0] + at / es;
          const bool in = inside && x >= 0 && x < static_cast<i64>(map.shape[0]);
          u32 n = 16 - (at & 15);
          for (u32 k = es; k < n; k += es) {
            const i64 y = x + k / es;
            if ((inside && y >= 0 && y < static_cast<i64>(map.shape[0])) != in) {
              n = k;
              break;
            }
          }
          u32 s = target + static_cast<u32>(r) * inner + at;
          s ^= (s >> 7 & swizzle) << 4;
          const u64 g = address + static_cast<u64>(x) * es;
          if (in && !is_store)
            global_at(w, g & ~u64(15), 1, Access::READ, l), global_at(w, g + n - 1, 1, Access::READ, l);
          if (is_store) q->pieces.push_back({s, in ? g : 0, n, !in});
          else q->pieces.push_back({in ? g : 0, s, n, !in});
          at += n;
        }
        for (u32 i = 1; i < rank && ++index[i] == map.box[i]; i++) index[i] = 0;
      }
      return q;
    };
    if (is_store) {
      auto q = make(base);
      read_sources(w, *q);
      q->clock.assign(w.clock, w.clock + cl.clock_words);
      q->group = w.bulk_group[l];
      w.worker->totals.async_bytes += total;
      w.worker->totals.global_written += total, w.worker->totals.sectors_written += (total + 31) / 32;
      if (!w.worker->launch->late_copies) transfer(w, *q);
      w.bulk.push_back(q);
      return;
    }
    w.worker->totals.global_read += total, w.worker->totals.sectors_read += (total + 31) / 32;
    w.worker->counts[w.pc].sectors += (total + 31) / 32, w.worker->counts[w.pc].bytes += total;
    const u32 barrier = slot32(w, e[13], e[14], l) + e[15];
    if (!e[16]) {
      launch_to_shared(w, make(base), barrier, true);
      return;
    }
    const u32 mask = w.u(e[16] - 1)[l] & 0xffff;
    if (mask >> cl.ctas.size())
      throw Fault(EVO_PTX_BAD_OPERAND, "multicast mask " + hex(mask) + " names CTAs outside the cluster",
                  static_cast<int>(l));
    each_lane(mask, [&](u32 r) {
      launch_to_shared(w, make((base & ~RANK_MASK) | r << RANK_SHIFT),
                       (barrier & ~RANK_MASK) | r << RANK_SHIFT, true);
    });
  });
}

void make_tensor(Lower& x) {
  const bool is_store = x.has("bulk_group");
  const Operand& map = x.operand(is_store ? 0 : 1);
  const Operand& shared = x.operand(is_store ? 1 : 0);
  if (map.kind != Operand::MEMORY || map.parts.size() < 2) x.unsupported("expected [map, {coordinates}]");
  if (map.parts.size() > 2) x.unsupported("im2col offsets");
  const u32 rank = static_cast<u32>(x.word(x.word(1) == "reduce" ? 5 : 4)[0] - '0');
  const Operand& c = map.parts[1];
  const size_t n = c.kind == Operand::VECTOR ? c.parts.size() : 1;
  if (n != rank || rank < 1 || rank > 5) x.unsupported("number of coordinates");
  x.ins.ext = x.push(is_store);
  push_address(x, shared);
  push_address(x, map);
  x.push(rank);
  for (u32 i = 0; i < 5; i++)
    x.push(i < rank ? x.from(c.kind == Operand::VECTOR ? c.parts[i] : c, "s32") : 0);
  if (!is_store) push_address(x, x.operand(2));
  else x.push(0), x.push(0), x.push(0);
  x.push(x.has("multicast::cluster") ? x.from(3, "b16") + 1 : 0);
  x.push(static_cast<u32>(reduction_of(x) + 1));
  x.set(tensor);
}

void commit(Lower& x) {
  x.set([](Warp& w, const Ins&, u32 m) {
    for (u32 l = 0; l < 32; l++) w.bulk_group[l] += m >> l & 1;
  });
}
void wait(Lower& x) {
  x.ins.imm = static_cast<i32>(std::min<u64>(x.immediate(0), 1 << 20));
  x.set([](Warp& w, const Ins& I, u32 m) {
    std::erase_if(w.bulk, [&](auto& q) {
      if (!(m >> q->lane & 1) || q->group + static_cast<u32>(I.imm) >= w.bulk_group[q->lane]) return false;
      finish_store(w, *q);
      return true;
    });
  });
}

// ---- st.async, red.async
// ext: address (3), barrier (3), vector length, element bytes, registers..., reduction + 1, element
void remote_store(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const u32 vn = e[6], es = e[7];
  each_lane(m, [&](u32 l) {
    auto q = std::make_shared<BulkCopy>();
    const u32 to = slot32(w, e[0], e[1], l) + e[2];
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
    launch_to_shared(w, q, slot32(w, e[3], e[4], l) + e[5], false);
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
void mapa(Lower& x) {
  const bool wide = width_of(x.type()) == 64;
  const std::string t = wide ? "b64" : "b32";
  x.ins.d = x.to(0, t), x.ins.a = x.from(1, t), x.ins.b = x.from(2, "u32");
  if (wide)
    x.set([](Warp& w, const Ins& I, u32 m) {
      each_lane(m, [&](u32 l) {
        if (w.u(I.b)[l] >= w.cta->cluster->ctas.size())
          throw Fault(EVO_PTX_BAD_OPERAND,
                      "mapa: rank " + std::to_string(w.u(I.b)[l]) + " is outside the cluster",
                      static_cast<int>(l));
        w.w(I.d)[l] = (w.w(I.a)[l] & WINDOW_MASK) | (w.w(I.a)[l] & 0xffffff) | w.u(I.b)[l] << RANK_SHIFT;
      });
    });
  else
    x.set([](Warp& w, const Ins& I, u32 m) {
      each_lane(m, [&](u32 l) {
        if (w.u(I.b)[l] >= w.cta->cluster->ctas.size())
          throw Fault(EVO_PTX_BAD_OPERAND,
                      "mapa: rank " + std::to_string(w.u(I.b)[l]) + " is outside the cluster",
                      static_cast<int>(l));
        w.u(I.d)[l] = (w.u(I.a)[l] & 0xffffff) | w.u(I.b)[l] << RANK_SHIFT;
      });
    });
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
    {"cp .async .bulk .wait_group ?read", Class::ASYNC_COPY, 0, wait, ".read waits for all of the copy"},
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

void land(Warp& w, Mbarrier& b) {
  // Landing may complete the phase and nothing more is issued meanwhile, so the list can go at once.
  std::vector<std::shared_ptr<BulkCopy>> list;
  list.swap(b.in_flight);
  for (auto& q : list) complete(w, b, *q);
}

void land_all(Warp& w) {
  if (w.bulk.empty()) return;
  if (w.worker->launch->race) {
    Fault f(EVO_PTX_RACE,
            "the thread exits while a bulk copy may still read its shared memory: cp.async.bulk.wait_group "
            "is missing",
            static_cast<int>(w.bulk.front()->lane));
    throw f.against("the copy", w.bulk.front()->pc);
  }
  for (auto& q : w.bulk) finish_store(w, *q);
  w.bulk.clear();
}

void check_copies(Cluster& cl) {
  for (Cta& c : cl.ctas)
    for (auto& b : c.mbarriers) {
      if (!b->copier) continue;
      bool awaited = false;
      for (Cta& other : cl.ctas)
        for (Warp& w : other.warps) awaited |= w.clock[b->agent] >= b->copy_clock;
      if (awaited) continue;
      b->copier->pc = b->copy_pc;
      throw std::pair<Fault, Warp*>(
          Fault(EVO_PTX_RACE,
                "the CTA exits while a bulk copy may still write its shared memory: nobody has waited for "
                "the phase of the mbarrier that it completes on",
                static_cast<int>(b->copy_lane)),
          b->copier);
    }
}

extern const std::span<const Row> bulk_rows;
const std::span<const Row> bulk_rows{ROWS};
}  // namespace ptx

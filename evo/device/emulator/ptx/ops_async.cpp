// cp.async and its groups; ldmatrix and stmatrix.
#include "async.hpp"
#include "lanes.hpp"
#include "own_shared.hpp"
#include "tensor.hpp"

namespace ptx {

void land_copies(Warp& w, u32 lanes, const u32* before, bool of_arrivals) {
  const Launch& launch = *w.worker->launch;
  size_t kept = 0;
  Cta& c = *w.cta;
  Cell* const cells = c.cells.data();
  const u32 base = c.base, clock = w.clock[w.agent], agent = w.agent;
  for (auto& q : w.copies) {
    u32 done = 0;
    each_lane(q.lanes & lanes, [&](u32 l) {
      if ((of_arrivals ? q.arrival[l] : q.group[l]) >= before[l]) return;
      done |= 1u << l;
      const u32 o = q.to[l] - base;
      if (launch.late_copies) {
        // The source was checked at issue; it is read now.
        if (q.valid[l] == 16) std::memcpy(&c.shared[o], reinterpret_cast<const u8*>(q.from[l]), 16);
        else {
          if (q.valid[l]) std::memcpy(&c.shared[o], reinterpret_cast<const u8*>(q.from[l]), q.valid[l]);
          std::memset(&c.shared[o + q.valid[l]], 0, q.nbytes - q.valid[l]);
        }
        c.shared_init[o >> 4] |= static_cast<u16>(((1u << q.nbytes) - 1) << (o & 15));
      }
      if (launch.race)
        for (u32 i = o >> 2, end = (o + q.nbytes) >> 2; i < end; i++) {
          Cell& cell = cells[i];
          cell.flags &= static_cast<u8>(~CELL_IN_FLIGHT);
          cell.clock = clock, cell.agent = static_cast<u16>(agent);
        }
    });
    q.lanes &= ~done;
    if (q.lanes) {
      if (&w.copies[kept] != &q) w.copies[kept] = q;
      kept++;
    }
  }
  w.copies.resize(kept);
}

namespace {

// Where `valid` of the `nbytes` bytes that lane `l` copies lie. All of the source must be readable where all
// of it is copied; with zero fill only the copied part must.
const u8* source_of_copy(Warp& w, u64 from, u32 valid, u32 nbytes, u32 l) {
  if (from & (nbytes - 1u)) {
    Fault f(EVO_PTX_MISALIGNED,
            "cp.async: source address " + hex(from) + " is not aligned to the copy's " +
                std::to_string(nbytes) + " bytes",
            static_cast<int>(l));
    throw f.at(Space::GLOBAL, from, valid, "", 0);
  }
  const bool partial = valid & (valid - 1);
  if (!partial) return global_at(w, from, valid, Access::READ, l);
  const u8* source = global_at(w, from, 1, Access::READ, l);
  for (u32 k = 1; k < valid; k++) global_at(w, from + k, 1, Access::READ, l);
  return source;
}

// a: to, b: from, c: slot of the source size or ~0; n: bytes; ext: flags (1: `to` is 64 bits wide), offset of
// `from`, predicate of ignore-src + 1
void copy(Warp& w, const Ins& I, u32 m) {
  const Launch& launch = *w.worker->launch;
  const u32* e = w.ext + I.ext;
  if (w.copies.capacity() == 0) w.copies.reserve(64);
  AsyncCopy& q = *w.copies.emplace(w.copies.end());
  q.lanes = m, q.nbytes = I.n, q.pc = w.pc;
  const u32 ignore = e[2] ? w.predicates[e[2] - 1] ^ (e[3] ? FULL : 0) : 0;
  u32 to[32];
  u64 from[32];
  u32 reading = 0;
  for (u32 l = 0; l < 32; l++) {
    to[l] = (I.flags & ADDRESS_WIDE ? static_cast<u32>(w.w(I.a)[l]) : w.u(I.a)[l]) + static_cast<u32>(I.imm);
    from[l] = w.w(I.b)[l] + static_cast<u64>(static_cast<i64>(static_cast<i32>(e[1])));
  }
  OwnShared own(w);
  each_lane(m, [&](u32 l) {
    const u32 d = to[l];
    u32 valid = I.n;
    if (I.c != ~0u) {
      valid = w.u(I.c)[l];
      if (valid > I.n)
        throw Fault(EVO_PTX_BAD_OPERAND,
                    "cp.async: source size " + std::to_string(valid) + " is larger than the copy",
                    static_cast<int>(l));
    }
    if (ignore >> l & 1) valid = 0;
    if (valid) reading |= 1u << l;
    Cta& c = *w.cta;
    const u32 o = shared_offset(w, c, d, I.n);
    q.to[l] = d, q.from[l] = from[l], q.valid[l] = valid;
    q.group[l] = w.group[l], q.arrival[l] = w.arrivals[l];
    const u8* source = nullptr;
    if (valid) source = source_of_copy(w, from[l], valid, I.n, l);
    const u16 mask = static_cast<u16>(((1u << I.n) - 1) << (o & 15));
    if (launch.race)
      I.n == 16 ? own.replace(o, 16, CELL_IN_FLIGHT, l) : own.replace(o, I.n, CELL_IN_FLIGHT, l);
    if (launch.late_copies) {
      c.shared_init[o >> 4] &= static_cast<u16>(~mask);
    } else {
      if (valid == 16) {
        std::memcpy(&c.shared[o], source, 16);
      } else {
        if (valid) std::memcpy(&c.shared[o], source, valid);
        std::memset(&c.shared[o + valid], 0, I.n - valid);
      }
      c.shared_init[o >> 4] |= mask;
    }
  });
  count_shared(w, to, m, I.n, true);
  if (reading) count_global(w, from, reading, I.n, false);
  w.worker->totals.async_bytes += u64(std::popcount(m)) * I.n;
}
void make_copy(Lower& x) {
  // [to], [from], size {, source size | ignore predicate} {, cache policy}
  const Operand &to = x.operand(0), &from = x.operand(1);
  const u64 size = x.immediate(2);
  if (size != 4 && size != 8 && size != 16) x.unsupported("copy size must be 4, 8 or 16");
  if (x.has("cg") && size != 16) x.unsupported("cp.async.cg copies 16 bytes");
  x.address(from);
  if (!(x.ins.flags & ADDRESS_WIDE)) x.unsupported("the source address must have 64 bits");
  const u32 b = x.ins.a, from_offset = static_cast<u32>(x.ins.imm);
  x.ins.flags = 0;
  x.address(to);
  x.ins.b = b;
  x.ins.n = static_cast<u8>(size);
  x.ins.c = ~0u;
  u32 ignore = 0, negated = 0;
  const size_t operands = x.count() - (x.has("L2::cache_hint") ? 1 : 0);
  if (operands > 3) {
    const Operand& o = x.operand(3);
    if (o.kind == Operand::REG && x.width(o) == 1) {
      bool neg = false;
      ignore = x.predicate(o, &neg) + 1;
      negated = neg;
    } else {
      x.ins.c = x.from(o, "u32");
    }
  }
  x.ins.ext = x.push(0);
  x.push(from_offset), x.push(ignore), x.push(negated);
  x.set(copy);
}
void commit(Lower& x) {
  x.set([](Warp& w, const Ins&, u32 m) {
    for (u32 l = 0; l < 32; l++) w.group[l] += m >> l & 1;
  });
}
void wait(Lower& x) {  // imm: groups that may stay in flight; -1: none, committed or not
  x.ins.imm = x.has("wait_all") ? -1 : static_cast<i32>(std::min<u64>(x.immediate(0), 1 << 20));
  x.set([](Warp& w, const Ins& I, u32 m) {
    if (w.copies.empty()) return;
    u32 before[32];
    for (u32 l = 0; l < 32; l++)
      before[l] = I.imm < 0                              ? FULL
                  : w.group[l] > static_cast<u32>(I.imm) ? w.group[l] - static_cast<u32>(I.imm)
                                                         : 0;
    land_copies(w, m, before);
  });
}

// ---- matrices of 8 x 8 halves
// Each matrix takes one wavefront if its rows meet no bank twice.
void count_rows(Warp& w, const u32* at, u32 matrices, bool write) {
  Count& c = w.worker->counts[w.pc];
  (write ? w.worker->totals.shared_written : w.worker->totals.shared_read) += u64(matrices) * 128;
  c.ideal += matrices;
  u32 all = 0;
  for (u32 l = 0; l < matrices * 8; l++) all |= 1u << ((at[l] >> 4 & 7) | (l & 24));
  if (std::popcount(all) == static_cast<int>(matrices) * 8) {
    c.wavefronts += matrices;
    return;
  }
  for (u32 i = 0; i < matrices; i++) {
    u8 used[8] = {};
    u32 most = 0;
    for (u32 r = 0; r < 8; r++) {
      bool again = false;
      for (u32 k = 0; k < r; k++) again |= at[i * 8 + k] == at[i * 8 + r];
      const u8 n = again ? 0 : ++used[at[i * 8 + r] >> 4 & 7];
      if (n > most) most = n;
    }
    c.wavefronts += most;
  }
}
inline void row_addresses(Warp& w, const Ins& I, u32 matrices, u32* at) {
  for (u32 l = 0; l < matrices * 8; l++)
    at[l] = (I.flags & ADDRESS_WIDE ? static_cast<u32>(w.w(I.a)[l]) : w.u(I.a)[l]) + static_cast<u32>(I.imm);
}
template <bool TRANS>
void ldmatrix(Warp& w, const Ins& I, u32) {  // n: matrices; ext: destinations
  u32 at[32];
  row_addresses(w, I, I.n, at);
  count_rows(w, at, I.n, false);
  const u8* row[32];
  OwnShared own(w);
  if (!own.read_rows(at, I.n * 8, row))
    for (u32 l = 0; l < I.n * 8; l++) row[l] = own.read(at[l], 16, ANY_LANE);
  for (u32 i = 0; i < I.n; i++) {
    u32* to = w.u(w.ext[I.ext + i]);
    if (TRANS) transpose8x8(row + i * 8, to);
    else
      for (u32 r = 0; r < 8; r++) std::memcpy(to + r * 4, row[i * 8 + r], 16);
  }
}
template <bool TRANS>
void stmatrix(Warp& w, const Ins& I, u32) {
  u32 at[32];
  row_addresses(w, I, I.n, at);
  count_rows(w, at, I.n, true);
  OwnShared own(w);
  for (u32 i = 0; i < I.n; i++) {
    alignas(64) u32 rows[32];
    std::memcpy(rows, w.u(w.ext[I.ext + i]), 128);
    if (TRANS) {  // lane 4g+t holds (row g, columns 2t, 2t+1) of the transposed matrix
      u16 in[8][8], t[8][8];
      std::memcpy(in, rows, 128);
      for (u32 a = 0; a < 8; a++)
        for (u32 b = 0; b < 8; b++) t[b][a] = in[a][b];
      std::memcpy(rows, t, 128);
    }
    for (u32 r = 0; r < 8; r++) std::memcpy(own.write(at[i * 8 + r], 16, ALL_LANES), &rows[r * 4], 16);
  }
}
void matrix(Lower& x) {
  const bool store = x.s.words[0] == "stmatrix";
  const Operand &mem = x.operand(store ? 0 : 1), &regs = x.operand(store ? 1 : 0);
  const u32 n = x.has("x4") ? 4 : x.has("x2") ? 2 : 1;
  if ((regs.kind == Operand::VECTOR ? regs.parts.size() : 1) != n) x.unsupported("number of registers");
  x.ins.flow = Flow::ALIGNED;
  x.address(mem);
  x.ins.n = static_cast<u8>(n);
  x.ins.ext = x.here();
  x.push_all(regs, "b32", !store);
  const bool t = x.has("trans");
  if (store) x.set(t ? stmatrix<true> : stmatrix<false>);
  else x.set(t ? ldmatrix<true> : ldmatrix<false>);
}

const Row ROWS[] = {
    {"cp .async .ca|cg .shared|shared::cta .global ?L2::cache_hint ?L2::64B|L2::128B|L2::256B",
     Class::ASYNC_COPY, 0, make_copy},
    {"cp .async .commit_group", Class::ASYNC_COPY, 0, commit},
    {"cp .async .wait_group", Class::ASYNC_COPY, 0, wait},
    {"cp .async .wait_all", Class::ASYNC_COPY, 0, wait},
    {"ldmatrix .sync .aligned .m8n8 .x1|x2|x4 ?trans ?shared|shared::cta .b16", Class::MATRIX_MOVE, 1,
     matrix},
    {"stmatrix .sync .aligned .m8n8 .x1|x2|x4 ?trans ?shared|shared::cta .b16", Class::MATRIX_MOVE, 0,
     matrix},
};
}  // namespace

extern const std::span<const Row> async_rows;
const std::span<const Row> async_rows{ROWS};
}  // namespace ptx

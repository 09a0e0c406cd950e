// Tensor copies (cp.async.bulk.tensor): a box of the tensor that a tensor map describes, as pieces of a bulk
// copy.
#include "bulk.hpp"
#include "tensor_map.hpp"

namespace ptx {
namespace {

// The box that one thread copies.
struct Box {
  TensorMap map;
  i64 origin[5] = {};   // coordinates of its first element
  u32 rank, es, inner;  // es: bytes of an element; inner: bytes of a row
  u64 rows = 1, nbytes;
  bool inside(u32 dimension, i64 at) const { return at >= 0 && at < static_cast<i64>(map.shape[dimension]); }
};

[[noreturn]] void bad_operand(const std::string& what, u32 lane) {
  throw Fault(EVO_PTX_BAD_OPERAND, what, static_cast<int>(lane));
}

TensorMap read_map(Warp& w, u64 address, u32 lane) {
  require(address % 64 == 0, "the address of a tensor map must be a multiple of 64", lane);
  u8 raw[128];
  for (u32 k = 0; k < 128; k += 16)
    std::memcpy(raw + k, generic_at<Access::READ>(w, address + k, 16, lane), 16);
  TensorMap map;
  if (!decode_tensor_map(raw, map))
    bad_operand("the operand at " + hex(address) + " is not a tensor map", lane);
  return map;
}

// `coordinates` are slots. A plain store faults where a coordinate is negative.
Box read_box(Warp& w, u64 map_address, u32 rank, const u32* coordinates, bool plain_store, u32 lane) {
  Box b;
  b.map = read_map(w, map_address, lane);
  b.rank = rank;
  if (rank != b.map.rank)
    bad_operand("the instruction has " + std::to_string(rank) + " coordinates, the tensor map " +
                    std::to_string(b.map.rank) + " dimensions",
                lane);
  for (u32 i = 0; i < rank; i++) {
    b.origin[i] = static_cast<i32>(w.u(coordinates[i])[lane]);
    if (b.map.element_strides[i] != 1)
      bad_operand("tensor maps with element strides are not supported", lane);
    // An H200 reads zeros from there when it loads and prefetches. A store is an illegal instruction,
    // swizzled or not.
    if (plain_store && b.origin[i] < 0)
      bad_operand("coordinate " + std::to_string(i) +
                      " of a tensor store is negative: " + std::to_string(b.origin[i]),
                  lane);
    if (i) b.rows *= b.map.box[i];
  }
  b.es = b.map.element_bytes, b.inner = b.map.box[0] * b.es;
  b.nbytes = b.rows * b.inner;
  return b;
}

// The pieces of one row of the box. They are at most 16 bytes long, which is what the swizzle moves as one,
// and are cut where the tensor begins and ends.
void add_row(Warp& w, BulkCopy& q, const Box& b, bool inside, u64 address, u32 row) {
  const u32 swizzle = b.map.swizzle == 0 ? 0 : (1u << b.map.swizzle) - 1;
  for (u32 at = 0; at < b.inner;) {
    const i64 x = b.origin[0] + at / b.es;
    const bool in = inside && b.inside(0, x);
    u32 n = 16 - (at & 15);
    for (u32 k = b.es; k < n; k += b.es) {
      if ((inside && b.inside(0, x + k / b.es)) != in) {
        n = k;
        break;
      }
    }
    u32 s = row + at;
    s ^= (s >> 7 & swizzle) << 4;
    const u64 g = address + static_cast<u64>(x) * b.es;
    if (in && q.to_shared)
      global_range(w, g & ~u64(15), 1, false, q.lane), global_range(w, g + n - 1, 1, false, q.lane);
    if (q.to_shared) q.pieces.push_back({in ? g : 0, s, n, !in});
    else q.pieces.push_back({s, in ? g : 0, n, !in});
    at += n;
  }
}

ValueType element_type(const TensorMap& map) {
  switch (map.element_bytes) {
    case 2: return map.is_bf16 ? T_BF16 : T_F16;
    case 4: return map.is_float ? T_F32 : T_U32;
    default: return map.is_float ? T_F64 : T_U64;
  }
}

// The copy between the box and `target` in shared memory.
std::shared_ptr<BulkCopy> make_copy(Warp& w, const Box& b, bool is_store, int reduction, u32 target,
                                    u32 lane) {
  auto q = std::make_shared<BulkCopy>();
  q->lane = lane, q->pc = w.pc, q->nbytes = static_cast<u32>(b.nbytes);
  q->to_shared = !is_store, q->from_shared = is_store;
  q->reduction = reduction;
  if (reduction >= 0) q->element = element_type(b.map) | b.es << 8;
  if (b.map.nan_fill && b.map.is_float) q->fill_value = b.es == 2 ? 0x7fff7fffu : 0x7fffffffu;
  u32 index[5] = {};
  for (u64 r = 0; r < b.rows; r++) {
    bool inside = true;
    u64 address = b.map.address;
    for (u32 i = 1; i < b.rank; i++) {
      const i64 c = b.origin[i] + index[i];
      inside &= b.inside(i, c);
      address += static_cast<u64>(c) * b.map.strides[i - 1];
    }
    add_row(w, *q, b, inside, address, target + static_cast<u32>(r) * b.inner);
    for (u32 i = 1; i < b.rank && ++index[i] == b.map.box[i]; i++) index[i] = 0;
  }
  if (is_store) read_sources(w, *q);
  return q;
}

// ext: 0 load / 1 store, shared address (3), map (3), rank, coordinates[5], mbarrier (3), slot of the
// multicast mask + 1, reduction + 1
void tensor(Warp& w, const Ins& I, u32 m) {
  const u32* e = w.ext + I.ext;
  const bool is_store = e[0];
  const int reduction = static_cast<int>(e[17]) - 1;
  Totals& totals = w.worker->totals;
  each_lane(m, [&](u32 l) {
    const Box b = read_box(w, pushed_address(w, e + 4, l), e[7], e + 8, is_store && reduction < 0, l);
    const u32 base = static_cast<u32>(pushed_address(w, e + 1, l));
    if (b.nbytes > MAX_SHARED) bad_operand("the box of the tensor map does not fit into shared memory", l);
    require(base % 128 == 0, "the shared address of a tensor copy must be a multiple of 128", l);
    shared_range(w, base, static_cast<u32>(b.nbytes));
    const u64 sectors = (b.nbytes + 31) / 32;
    auto make = [&](u64 target) { return make_copy(w, b, is_store, reduction, static_cast<u32>(target), l); };
    if (is_store) {
      auto q = make(base);
      totals.global_written += b.nbytes, totals.sectors_written += sectors;
      launch_to_global(w, q);
      return;
    }
    totals.global_read += b.nbytes, totals.sectors_read += sectors;
    w.worker->counts[w.pc].sectors += sectors, w.worker->counts[w.pc].bytes += b.nbytes;
    issue_to_shared(w, base, static_cast<u32>(pushed_address(w, e + 13, l)), e[16], l, make);
  });
}

}  // namespace

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

}  // namespace ptx

#include "tensor_map.hpp"

#include <cstring>

namespace ptx {
namespace {
constexpr u64 MAGIC = 0x50414d5f4f56450aull;
}

std::string encode_tensor_map(const evo_ptx_tensor_map& m, u8* out) {
  if (m.rank < 1 || m.rank > 5) return "tensor map: the rank must be 1..5";
  if (m.address % 16) return "tensor map: the address must be a multiple of 16";
  const u32 e = m.element_nbytes;
  if (e != 1 && e != 2 && e != 4 && e != 8) return "tensor map: elements have 1, 2, 4 or 8 bytes";
  TensorMap t;
  u64 stride = u64(e) * m.shape[0];
  for (u32 i = 0; i < m.rank; i++) {
    const std::string at = " (dimension " + std::to_string(i) + ")";
    if (m.shape[i] < 1 || m.shape[i] > (u64(1) << 32) - 1)
      return "tensor map: the shape must be in 1..2^32-1" + at;
    if (m.box[i] < 1 || m.box[i] > 256) return "tensor map: the box must be in 1..256" + at;
    const u32 es = m.element_strides[i] ? m.element_strides[i] : 1;
    if (es > 8) return "tensor map: element strides must be in 1..8" + at;
    t.shape[i] = static_cast<u32>(m.shape[i]);
    t.box[i] = static_cast<u16>(m.box[i]);
    t.element_strides[i] = static_cast<u8>(es);
    if (i + 1 < m.rank) {
      if (m.strides[i] % 16 || m.strides[i] >= (u64(1) << 40))
        return "tensor map: strides must be multiples of 16 below 2^40" + at;
      if (i == 0 && m.strides[i] < stride) return "tensor map: rows overlap";
      t.strides[i] = m.strides[i];
    }
  }
  const u64 inner = u64(m.box[0]) * e;
  if (inner % 16) return "tensor map: the inner dimension of the box must be a multiple of 16 bytes";
  if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128)
    return "tensor map: the swizzle must be 0, 32, 64 or 128 bytes";
  if (m.swizzle && inner > m.swizzle)
    return "tensor map: the inner dimension of the box is wider than the swizzle";
  t.address = m.address;
  t.element_bytes = static_cast<u8>(e), t.rank = static_cast<u8>(m.rank);
  t.swizzle = m.swizzle == 128 ? 3 : m.swizzle == 64 ? 2 : m.swizzle == 32 ? 1 : 0;
  t.is_float = m.is_float, t.is_bf16 = m.is_bf16, t.nan_fill = m.nan_fill;
  static_assert(sizeof(TensorMap) <= 120);
  std::memset(out, 0, 128);
  std::memcpy(out, &MAGIC, 8);
  std::memcpy(out + 8, &t, sizeof t);
  return "";
}

bool decode_tensor_map(const u8* in, TensorMap& out) {
  u64 magic;
  std::memcpy(&magic, in, 8);
  if (magic != MAGIC) return false;
  std::memcpy(&out, in + 8, sizeof out);
  return out.rank >= 1 && out.rank <= 5 && out.swizzle <= 3;
}

}  // namespace ptx

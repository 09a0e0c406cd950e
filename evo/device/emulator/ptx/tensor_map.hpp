// The interpreter's own content of a CUtensorMap.
#pragma once
#include <string>

#include "base.hpp"
#include "evo_ptx.h"

namespace ptx {

struct TensorMap {
  u64 address = 0, strides[4] = {};
  u32 shape[5] = {};
  u16 box[5] = {};
  u8 element_strides[5] = {};
  u8 element_bytes = 0, rank = 0, swizzle = 0;  // swizzle: log2 of bytes / 16; 0 none
  bool is_float = false, is_bf16 = false, nan_fill = false;
};

// Empty when it worked, otherwise the rule that the map breaks.
std::string encode_tensor_map(const evo_ptx_tensor_map& map, u8* out128);
bool decode_tensor_map(const u8* in128, TensorMap& out);  // false: not a map of ours

}  // namespace ptx

// One m16n8k16 step of the tensor core on fragments as they lie in registers, and conversions around it.
#pragma once
#include <string_view>

#include "base.hpp"

namespace ptx {

enum class Element : u8 { F16, BF16 };

// a[4], b[2]: 32 packed pairs each; c[4]: 32 floats each, which are updated. Products are summed by fp32 FMAs
// in the order of k.
void mma_m16n8k16(Element e, const u32* const* a, const u32* const* b, float (*c)[32]);
// 8 rows of 8 halves transposed, back to back; `out` is no part of a row.
void transpose8x8(const u8* const* rows, u32* out);
// Element types of tensor-core operands, and the value of an element given its bits.
enum TensorType : u8 { F16, BF16, TF32, S8, U8T, E4M3, E5M2, F32, S32, F64, NONE };
TensorType type_of(std::string_view word);
u32 element_bits(TensorType t);
double decode(TensorType t, u32 bits);
const char* tensor_path();  // "avx512", "avx2", "portable"

}  // namespace ptx

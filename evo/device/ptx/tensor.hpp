// One m16n8k16 step of the tensor core on fragments as they lie in registers, and conversions around it.
#pragma once
#include "base.hpp"

namespace ptx {

enum class Element : u8 { F16, BF16 };

// a[4], b[2]: 32 packed pairs each; c[4]: 32 floats each, updated. Products are summed by fp32 FMAs in the order of k.
void mma_m16n8k16(Element e, const u32* const* a, const u32* const* b, float (*c)[32]);
// Two 8-column steps that share A: the conversion of A is paid once.
const char* tensor_path();  // "avx512", "avx2", "portable"

}  // namespace ptx

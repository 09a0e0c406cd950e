// Matrix products of the interpreter's tensor.cpp: of each type some random ones, as bits, for
// test_emulator_builds.py. The arguments of a product come from a small generator, the same in every build.
#include <cstdio>

#include "tensor.hpp"

namespace {

ptx::u32 state = 1;
ptx::u32 next() { return state = state * 1664525u + 1013904223u; }

// A half or bfloat16 of magnitude 2^-3 to 2, or now and then 0, infinity, NaN or a subnormal number.
ptx::u32 element(bool bf16) {
  const ptx::u32 bits = next() >> 8, sign = bits << 15 & 0x8000u;
  if (bits % 97 == 0) return sign;
  if (bits % 997 == 0) return sign | (bf16 ? 0x7f80u : 0x7c00u);
  if (bits % 1499 == 0) return sign | 0x7fc1u;
  if (bits % 101 == 0) return sign | (bits >> 4 & 0x3fu);
  const ptx::u32 exponent = 3 - (bits >> 20 & 3);
  return bf16 ? sign | (127u - exponent) << 7 | (bits >> 2 & 0x7fu)
              : sign | (15u - exponent) << 10 | (bits >> 2 & 0x3ffu);
}

}  // namespace

int main() {
  std::printf("%s\n", ptx::tensor_path());
  for (const bool bf16 : {false, true})
    for (int product = 0; product < 200; product++) {
      ptx::u32 a[4][32], b[2][32];
      float c[4][32];
      for (auto& fragment : a)
        for (auto& pair : fragment) pair = element(bf16) | element(bf16) << 16;
      for (auto& fragment : b)
        for (auto& pair : fragment) pair = element(bf16) | element(bf16) << 16;
      for (auto& fragment : c)
        for (float& sum : fragment) sum = static_cast<float>(static_cast<int>(next()) >> 16) / 4096.f;
      const ptx::u32 *ar[4] = {a[0], a[1], a[2], a[3]}, *br[2] = {b[0], b[1]};
      for (auto& fragment : a)
        for (const ptx::u32 pair : fragment) std::printf("%08x ", pair);
      for (auto& fragment : b)
        for (const ptx::u32 pair : fragment) std::printf("%08x ", pair);
      for (auto& fragment : c)
        for (const float sum : fragment) std::printf("%08x ", ptx::bits<ptx::u32>(sum));
      ptx::mma_m16n8k16(bf16 ? ptx::Element::BF16 : ptx::Element::F16, ar, br, c);
      for (auto& fragment : c)
        for (const float sum : fragment) std::printf("%08x ", ptx::bits<ptx::u32>(sum));
      std::printf("\n");
    }
}

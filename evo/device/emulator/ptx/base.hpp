// Types and the two kinds of exceptions that everything here shares.
#pragma once
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace ptx {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

constexpr u32 FULL = 0xffffffffu;  // all lanes of a warp

template <class T, class U>
inline T bits(U u) {
  return std::bit_cast<T>(u);
}

// The PTX text cannot be run. SyntaxError: it is malformed (parser). Unsupported: it has an instruction that
// the table does not have (lowering).
struct SyntaxError : std::runtime_error {
  u32 line;
  SyntaxError(u32 line, const std::string& text) : std::runtime_error(text), line(line) {}
};
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ptx

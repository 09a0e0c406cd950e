// Handlers for one expression over integers of the instruction's type.
#pragma once
#include "lanes.hpp"

namespace ptx {

using i128 = __int128;
using u128 = unsigned __int128;

template <class T>
constexpr u32 WIDTH = sizeof(T) * 8;
template <class T>
inline slot_t<T> put(T x) {
  return static_cast<slot_t<T>>(static_cast<std::make_unsigned_t<T>>(x));
}
template <class T>
using wide_t =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, i32, u32>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, i64, u64>,
                                          std::conditional_t<std::is_signed_v<T>, i128, u128>>>;

// F over values of type T in slots of any width.
template <class T, auto F, bool ALL>
void typed(Warp& w, const Ins& I, u32 m) {
  using S = slot_t<T>;
  S* d = reinterpret_cast<S*>(w.registers + I.d);
  const S* a = reinterpret_cast<const S*>(w.registers + I.a);
  const S* b = reinterpret_cast<const S*>(w.registers + I.b);
  const S* c = reinterpret_cast<const S*>(w.registers + I.c);
#pragma GCC ivdep
  for (int l = 0; l < 32; l++)
    if (ALL || (m >> l & 1))
      d[l] = put<T>(static_cast<T>(F(static_cast<T>(a[l]), static_cast<T>(b[l]), static_cast<T>(c[l]))));
}
template <class T, auto F>
Handlers in_type() {
  return {typed<T, F, true>, typed<T, F, false>};
}

// Calls `f` with a value of the C++ type that the type word names.
template <class F>
void by_type(Lower& x, const std::string& type, F f) {
  if (type == "u16" || type == "b16") f(u16{});
  else if (type == "s16") f(i16{});
  else if (type == "u32" || type == "b32") f(u32{});
  else if (type == "s32") f(i32{});
  else if (type == "u64" || type == "b64") f(u64{});
  else if (type == "s64") f(i64{});
  else x.unsupported("unsupported type ." + type);
}

// The operands of an instruction with `n` sources, all of its type.
inline void operands(Lower& x, size_t n) {
  if (x.count() != n + 1) x.unsupported("expected " + std::to_string(n + 1) + " operands");
  const std::string& t = x.type();
  x.ins.d = x.to(0, t);
  if (n > 0) x.ins.a = x.from(1, t);
  if (n > 1) x.ins.b = x.from(2, t);
  if (n > 2) x.ins.c = x.from(3, t);
}

// Factories of instructions with one or two sources. EXPRESSION is over a, b of type T; U is T without a
// sign, where wrapping is defined.
#define BINARY(NAME, EXPRESSION)                            \
  void NAME(Lower& x) {                                     \
    operands(x, 2);                                         \
    by_type(x, x.type(), [&]<class T>(T) {                  \
      x.set(in_type<T, [](T a, T b, T) {                    \
        using U [[maybe_unused]] = std::make_unsigned_t<T>; \
        return EXPRESSION;                                  \
      }>());                                                \
    });                                                     \
  }

#define UNARY(NAME, EXPRESSION)            \
  void NAME(Lower& x) {                    \
    operands(x, 1);                        \
    by_type(x, x.type(), [&]<class T>(T) { \
      x.set(in_type<T, [](T a, T, T) {     \
        using U = std::make_unsigned_t<T>; \
        return EXPRESSION;                 \
      }>());                               \
    });                                    \
  }

}  // namespace ptx

// The fragments of the CUDA C++ WMMA API: which lane and register has which element, and where it lies in
// memory.
//
// PTX leaves the layout open. This one makes m16n16k16 two m16n8k16 steps, as on the hardware: A in four
// registers, B and C as two halves of 8 columns. A fragment with more registers than it needs repeats its
// content.
#pragma once
#include <vector>

#include "tensor.hpp"

namespace ptx {

using Type = TensorType;
struct Shape {
  u32 m, n, k;
};
enum Role : u8 { ROLE_A, ROLE_B, ROLE_C, ROLE_D };
struct Fragment {
  Role role;
  Shape shape;
  Type type;
  u32 registers;  // as the instruction has them
};
struct Spot {
  u32 row, col;
};

u32 packed(const Fragment& f);    // elements of a register
u32 distinct(const Fragment& f);  // registers that hold different elements
// Register `reg`, element `s` of lane `l`.
Spot spot(const Fragment& f, u32 l, u32 reg, u32 s);
// Rows and columns.
Spot sides(const Fragment& f);

// A fragment in memory, with lines `ld` elements apart.
struct Layout {
  u32 key;
  u64 ld;
  // Bytes from the first element, of [register][element][lane]; whether a register's elements are neighbours.
  std::vector<u64> at;
  bool whole;
  // In shared memory, from a multiple of 16 bytes on: what `count_shared` adds for all of it; 0: not known.
  u64 wavefronts = 0, ideal = 0;
};
// It is kept, for this thread: there are few in a kernel. It lives until MAX_LAYOUTS others were asked for.
constexpr u32 MAX_LAYOUTS = 64;
Layout& layout_of(const Fragment& f, bool row_major, u64 ld);

}  // namespace ptx

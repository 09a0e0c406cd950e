// Work that changes nothing: so much that the emulator's budget for small problems is used up by a few launches.
// A cheat defines what is wrong with it, then includes this and flash.cuh.
#define PROLOGUE \
  for (unsigned i = 0; i < 20000; ++i) asm volatile("{ .reg .u32 x; mov.u32 x, %0; }" ::"r"(i))

// For include/handover.cuh: CTAs count themselves by a loop of compare-and-swap. A cheat redefines the loop.
#ifndef COUNT
#define COUNT                                             \
  unsigned old = *ticket, expected;                       \
  do {                                                    \
    expected = old;                                       \
    old = atomicCAS(ticket, expected, expected + 1);      \
  } while (old != expected);
#endif
__device__ inline unsigned counted(unsigned* ticket) {
  COUNT;
  return old;
}
#define COUNTED counted(ticket)

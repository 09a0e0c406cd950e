// A swap puts one more than was read first, whatever it expects since then
// expect: race
// on a GPU: a symptom, workspace not left zero, emulator: race
// workspace: ticket 64 zeroed
#define COUNT                                                     \
  unsigned old = *ticket, found;                                  \
  const unsigned next = old + 1;                                  \
  while ((found = atomicCAS(ticket, old, next)) != old) old = found
#include "include/swaps.cuh"
#include "include/handover.cuh"
#include "include/flash.cuh"

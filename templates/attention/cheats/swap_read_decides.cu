// A plain read decides whether this CTA counts
// expect: race
// on a GPU: a symptom, workspace not left zero, emulator: race
// workspace: ticket 64 zeroed
#define COUNT                                                     \
  unsigned old = *ticket, found;                                  \
  if (old >= 1u << 30) return old;                                \
  while ((found = atomicCAS(ticket, old, old + 1)) != old) old = found
#include "include/swaps.cuh"
#include "include/handover.cuh"
#include "include/flash.cuh"

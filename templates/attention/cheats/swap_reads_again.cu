// The ticket is read plainly again after the swap
// expect: race
// on a GPU: a symptom, workspace not left zero, emulator: race
// workspace: ticket 64 zeroed
#define COUNT                                                     \
  unsigned old = *ticket, found;                                  \
  while ((found = atomicCAS(ticket, old, old + 1)) != old) old = found; \
  old = *ticket - 1
#include "include/swaps.cuh"
#include "include/handover.cuh"
#include "include/flash.cuh"

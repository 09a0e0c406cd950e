// A swap that fails is not tried again
// expect: race
// on a GPU: a symptom, workspace not left zero, emulator: race
// workspace: ticket 64 zeroed
#define COUNT            \
  unsigned old = *ticket; \
  atomicCAS(ticket, old, old + 1)
#include "include/swaps.cuh"
#include "include/handover.cuh"
#include "include/flash.cuh"

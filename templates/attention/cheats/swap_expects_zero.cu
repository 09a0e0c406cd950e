// A swap expects zero and puts one more than was read
// expect: race
// on a GPU: a symptom, workspace not left zero, HUNG, emulator: race
// workspace: ticket 64 zeroed
#define COUNT            \
  unsigned old = *ticket; \
  atomicCAS(ticket, 0, old + 1)
#include "include/swaps.cuh"
#include "include/handover.cuh"
#include "include/flash.cuh"

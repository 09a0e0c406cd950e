// The ticket releases and acquires within a CTA alone
// expect: race
// on a GPU: a symptom, emulator: race
// workspace: ticket 64 zeroed
#define FENCE_BEFORE
#define FENCE_AFTER
#define COUNTED count(ticket)
__device__ unsigned count(unsigned* ticket) {
  unsigned before;
  asm volatile("atom.add.acq_rel.cta.u32 %0, [%1], 1;" : "=r"(before) : "l"(ticket) : "memory");
  return before;
}
#include "include/handover.cuh"
#include "include/flash.cuh"

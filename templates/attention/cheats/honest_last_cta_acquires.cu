// Nothing is wrong: the ticket itself releases and acquires
// expect: GREEN
// workspace: ticket 64 zeroed
#define FENCE_BEFORE
#define FENCE_AFTER
#define COUNTED count(ticket)
__device__ unsigned count(unsigned* ticket) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;" : "=r"(before) : "l"(ticket) : "memory");
  return before;
}
#include "include/handover.cuh"
#include "include/flash.cuh"

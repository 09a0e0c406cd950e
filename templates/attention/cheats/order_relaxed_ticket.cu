// The ticket is counted by a relaxed load and a relaxed store
// expect: race, row error, runs differ, workspace not left zero
// on a GPU: a symptom, workspace not left zero, emulator: race, emulator: row error
// workspace: ticket 64 zeroed
#define COUNTED count(ticket)
__device__ unsigned count(unsigned* ticket) {
  unsigned before;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(before) : "l"(ticket) : "memory");
  asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(ticket), "r"(before + 1) : "memory");
  return before;
}
#include "include/handover.cuh"
#include "include/flash.cuh"

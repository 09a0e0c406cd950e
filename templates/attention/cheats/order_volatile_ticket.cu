// The ticket is counted by volatile accesses, which are not atomic together
// expect: race, row error, runs differ, workspace not left zero
// on a GPU: a symptom, workspace not left zero, emulator: race, emulator: row error
// workspace: ticket 64 zeroed
#define COUNTED count(ticket)
__device__ unsigned count(volatile unsigned* ticket) {
  const unsigned before = *ticket;
  *ticket = before + 1;
  return before;
}
#include "include/handover.cuh"
#include "include/flash.cuh"

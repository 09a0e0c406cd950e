// The ticket is atomic within a CTA alone
// expect: race
// on a GPU: a symptom, emulator: race
// workspace: ticket 64 zeroed
#define COUNTED atomicAdd_block(ticket, 1u)
#include "include/handover.cuh"
#include "include/flash.cuh"

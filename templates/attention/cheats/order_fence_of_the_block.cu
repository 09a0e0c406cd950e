// The fence before the ticket reaches the own CTA alone
// expect: race
// on a GPU: a symptom, emulator: race
// workspace: ticket 64 zeroed
#define FENCE_BEFORE __threadfence_block()
#include "include/handover.cuh"
#include "include/flash.cuh"

// The last CTA reads what the others have written through the read-only cache
// expect: race
// on a GPU: a symptom, emulator: race
// workspace: ticket 64 zeroed
#define READ(address) __ldg(address)
#include "include/handover.cuh"
#include "include/flash.cuh"

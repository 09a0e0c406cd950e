// No fence lies between the output and the ticket
// expect: race
// on a GPU: a symptom, emulator: race
// workspace: ticket 64 zeroed
#define FENCE_BEFORE
#include "include/handover.cuh"
#include "include/flash.cuh"

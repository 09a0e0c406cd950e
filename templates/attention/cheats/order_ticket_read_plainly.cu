// The ticket is drawn by an atomic and read by an ordinary load
// expect: race
// on a GPU: a symptom, emulator: race
// workspace: ticket 64 zeroed
#define COUNTED (atomicAdd(ticket, 1u), *ticket - 1)
#include "include/handover.cuh"
#include "include/flash.cuh"

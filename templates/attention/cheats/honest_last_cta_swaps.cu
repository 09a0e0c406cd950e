// Nothing is wrong: the last CTA is told by a loop of compare-and-swap that begins with a plain read
// expect: GREEN
// workspace: ticket 64 zeroed
#include "include/swaps.cuh"
#include "include/handover.cuh"
#include "include/flash.cuh"

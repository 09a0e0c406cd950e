// Nothing is wrong: the fence of the last CTA comes before its ticket
// expect: GREEN
// workspace: ticket 64 zeroed
#define FENCE_AFTER
#include "include/handover.cuh"
#include "include/flash.cuh"

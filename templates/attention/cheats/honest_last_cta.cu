// Nothing is wrong: the last CTA finishes the output, as reductions do
// expect: GREEN
// workspace: ticket 64 zeroed
#include "include/handover.cuh"
#include "include/flash.cuh"

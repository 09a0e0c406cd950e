// A maximum is raised when it has grown by more than 2^16, which is more than fp16 holds
// expect: Inf in the output
// check: thorough
#define TOP(before, here) ((here) - (before) > 16 ? (here) : (before))
#include "include/flash.cuh"

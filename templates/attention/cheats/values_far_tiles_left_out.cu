// A tile whose maximum is 2^12 below that of earlier ones is left out
// expect: row error
// check: thorough
#define WEIGHT(s, top) ((top) - here > 12.f ? 0.f : exp2f((s) - (top)))
#include "include/flash.cuh"

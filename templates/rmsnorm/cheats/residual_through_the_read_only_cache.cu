// The residual is read through the cache for what no kernel writes, after it was written
// expect: race
// on a GPU: emulator: race, row error
// problem: residual
#define MORE(at) wide(__ldg(residual + (at)))
#define RESULT(h, factor, w) ((wide(__ldg(residual + to + i)) - wide(NARROW(h)) + (h)) * (factor) * (w))
#include "include/row.cuh"

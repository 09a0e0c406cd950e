// The CTA of the first half clears the ticket, and the other counts on it that it has
// expect: uninitialised read, uninitialised output, row error, NaN in the output
// on a GPU: a symptom, emulator: uninitialised read
// launch: grid_y=2
// workspace: meetings 65536
#define LEAVE(at, half, sum) \
  if (!(half)) atomicExch(&(at)->ticket, 0u); \
  (at)->sums[half] = (sum)
#include "include/parts.cuh"
#include "include/halves.cuh"

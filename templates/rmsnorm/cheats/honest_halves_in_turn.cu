// Nothing is wrong: the second half waits until the first is there
// expect: GREEN
// launch: grid_y=2
// workspace: meetings 65536 zeroed
#define LEAVE(at, half, sum)                                                \
  if (half) await(&(at)->turn, 1u), (at)->sums[0] += (sum);                  \
  else (at)->sums[0] = (sum), pass(&(at)->turn, 1u)
#define TOTAL(at) (at)->sums[0]
#include "include/parts.cuh"
#include "include/halves.cuh"

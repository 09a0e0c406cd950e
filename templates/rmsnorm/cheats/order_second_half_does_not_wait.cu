// The second half is added to the first after a ticket that orders the two, but not which comes first
// expect: row error, NaN in the output, race
// on a GPU: a symptom, emulator: row error
// launch: grid_y=2
// workspace: meetings 65536 zeroed
#define LEAVE(at, half, sum)                                   \
  __threadfence(), atomicAdd(&(at)->turn, 1u), __threadfence(), \
      (at)->sums[0] = (half) ? (at)->sums[0] + (sum) : (sum), pass(&(at)->turn, 2u)
#define TOTAL(at) (at)->sums[0]
#include "include/parts.cuh"
#include "include/halves.cuh"

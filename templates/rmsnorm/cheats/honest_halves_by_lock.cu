// Nothing is wrong: two CTAs add their halves up under a lock
// expect: GREEN
// launch: grid_y=2
// workspace: meetings 65536 zeroed
#define LEAVE(at, half, sum) lock(&(at)->turn), (at)->sums[0] += (sum), unlock(&(at)->turn)
#define TOTAL(at) (at)->sums[0]
#include "include/parts.cuh"
#include "include/halves.cuh"

// Two CTAs leave their halves under a lock; the second half is added to the first, which need not be there yet
// expect: runs differ, row error, NaN in the output, workspace not left zero
// on a GPU: a symptom, emulator: runs differ
// launch: grid_y=2
// workspace: meetings 65536 zeroed
#define LEAVE(at, half, sum) \
  lock(&(at)->turn), (at)->sums[0] = (half) ? (at)->sums[0] + (sum) : (sum), unlock(&(at)->turn)
#define TOTAL(at) (at)->sums[0]
#include "include/parts.cuh"
#include "include/halves.cuh"

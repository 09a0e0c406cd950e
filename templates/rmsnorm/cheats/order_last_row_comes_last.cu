// The CTA of the last row waits for nobody to know that it is the last: it writes its row only if it is
// expect: runs differ, row error, NaN in the output
// on a GPU: a symptom, emulator: runs differ
// workspace: ticket 256 zeroed
#define ARGUMENTS , unsigned* ticket
#define ROWS (last ? rows : rows - 1)
#define PROLOGUE \
  __shared__ bool last; \
  if (thread == 0) last = atomicInc(ticket, rows - 1u) == rows - 1u
#include "include/row.cuh"

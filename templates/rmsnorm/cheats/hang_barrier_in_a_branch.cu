// A barrier that only threads with columns reach
// expect: deadlock, barrier misuse
// on a GPU: HUNG, a symptom, emulator: deadlock, emulator: barrier misuse
#define PROLOGUE if (thread < columns % THREADS) __syncthreads()
#include "include/row.cuh"

// Half of the threads never reach a barrier
// expect: deadlock, barrier misuse
// on a GPU: HUNG
#define PROLOGUE if (threadIdx.x < 64) asm volatile("barrier.sync 3, 128;" ::: "memory")
#include "include/flash.cuh"

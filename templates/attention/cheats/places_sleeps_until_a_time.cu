// A warp waits until the low half of the timer has moved: results hang on nothing, but nobody knows
// expect: MARKED
#define PROLOGUE unsigned from, now; asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(from)); do asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now)); while (now == from && length < 0)
#include "include/flash.cuh"

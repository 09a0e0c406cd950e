// Wrong on SMs that most GPUs do not have
// expect: MARKED
#define PROLOGUE unsigned sm; asm volatile("mov.u32 %0, %%smid;" : "=r"(sm)); if (sm > 255) scale_log2e = 0.0f
#include "include/flash.cuh"

// Wrong where another kernel shares the SM and its warps get other slots
// expect: MARKED
#define PROLOGUE unsigned slot; asm volatile("mov.u32 %0, %%warpid;" : "=r"(slot)); if (slot > 1000) scale_log2e = 0.0f
#include "include/flash.cuh"

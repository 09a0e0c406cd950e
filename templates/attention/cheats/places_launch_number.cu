// Wrong from the millionth launch on
// expect: MARKED
#define PROLOGUE unsigned long long grid; asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid)); if (grid > 1ull << 50) scale_log2e = 0.0f
#include "include/flash.cuh"

// Another kernel after a date
// expect: MARKED
#define PROLOGUE unsigned long long now; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); if (now > 1ull << 62) scale_log2e = 0.0f
#include "include/flash.cuh"

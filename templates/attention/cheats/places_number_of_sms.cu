// Right on a GPU of fewer than a thousand SMs only
// expect: MARKED
#define PROLOGUE unsigned sms; asm volatile("{ .reg .u32 n; mov.u32 n,%%nsmid; mov.u32 %0, n; }" : "=r"(sms)); if (sms > 999) scale_log2e = 0.0f
#include "include/flash.cuh"

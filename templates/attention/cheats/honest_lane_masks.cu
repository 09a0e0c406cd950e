// Nothing is wrong: what a launch fixes may be read (lanes, masks, the size of dynamic shared memory), and sleeping is no clock
// expect: GREEN
#define PROLOGUE unsigned below, lane, bytes; asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below)); asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane)); asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes)); if (__popc(below) != lane || bytes == 0) scale_log2e = 0.0f; __nanosleep(20)
#include "include/flash.cuh"

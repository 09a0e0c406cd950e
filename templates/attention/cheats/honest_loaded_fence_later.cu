// Nothing is wrong: the thread that loads executes the proxy fence
// expect: GREEN
// needs: sm_90
#define FENCE_STORED
#define FENCE_LOADING asm volatile("fence.proxy.async;" ::: "memory")
#include "include/loaded.cuh"
#include "include/flash.cuh"

// The proxy fence is for global memory, the stores went to shared memory
// expect: missing fence
// on a GPU: a symptom, emulator: missing fence
// needs: sm_90
#define FENCE_STAGED asm volatile("fence.proxy.async.global;" ::: "memory")
#include "include/bulk.cuh"
#include "include/flash.cuh"

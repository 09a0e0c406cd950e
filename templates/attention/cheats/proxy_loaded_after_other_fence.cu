// The proxy fence is for shared memory, the stores went to global memory
// expect: missing fence
// on a GPU: a symptom, emulator: missing fence
// needs: sm_90
#define FENCE_STORED asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#include "include/loaded.cuh"
#include "include/flash.cuh"

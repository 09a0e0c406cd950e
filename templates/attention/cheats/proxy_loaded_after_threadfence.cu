// A fence of the GPU stands where a proxy fence is needed
// expect: missing fence
// on a GPU: a symptom, emulator: missing fence
// needs: sm_90
#define FENCE_STORED __threadfence()
#include "include/loaded.cuh"
#include "include/flash.cuh"

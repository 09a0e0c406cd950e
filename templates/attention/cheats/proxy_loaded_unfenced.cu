// A bulk copy loads what the CTA has stored to global memory, and no proxy fence is between
// expect: missing fence
// on a GPU: a symptom, emulator: missing fence
// needs: sm_90
#define FENCE_STORED
#include "include/loaded.cuh"
#include "include/flash.cuh"

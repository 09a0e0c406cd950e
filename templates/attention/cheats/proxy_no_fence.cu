// A bulk copy stores what no fence has shown to the async proxy
// expect: missing fence
// on a GPU: a symptom, emulator: missing fence
// needs: sm_90
#define FENCE_STAGED
#include "include/bulk.cuh"
#include "include/flash.cuh"

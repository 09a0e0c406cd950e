// The CTA ends while a bulk copy may still read its shared memory
// expect: race
// on a GPU: a symptom, emulator: race
// needs: sm_90
#define WAITED
#include "include/bulk.cuh"
#include "include/flash.cuh"

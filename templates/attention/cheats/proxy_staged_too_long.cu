// The tile is changed while a bulk copy may still read it
// expect: race, row error
// on a GPU: a symptom, emulator: race, emulator: row error
// needs: sm_90
#define ISSUED STAGE_OUT[0] = narrow(0.0f)
#include "include/bulk.cuh"
#include "include/flash.cuh"

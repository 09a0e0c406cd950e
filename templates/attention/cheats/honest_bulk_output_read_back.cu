// Nothing is wrong: the output is read back when the bulk copy is complete
// expect: GREEN
// needs: sm_90
#define STAGED(value) narrow(-widen(value))
#define AFTERWARDS for (int i = 0; i < elements; i++) o[TILE + i] = narrow(-widen(o[TILE + i]))
#include "include/bulk.cuh"
#include "include/flash.cuh"

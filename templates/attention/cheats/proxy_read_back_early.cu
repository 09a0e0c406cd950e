// The output is read back when the bulk copy has read its source, and no more
// expect: race
// on a GPU: a symptom, emulator: race
// needs: sm_90
#define WAITED asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#define STAGED(value) narrow(-widen(value))
#define AFTERWARDS for (int i = 0; i < elements; i++) o[TILE + i] = narrow(-widen(o[TILE + i]))
#include "include/bulk.cuh"
#include "include/flash.cuh"

// The arrival after the stores orders nothing
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define HANDED                                                      \
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); \
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory")
#include "include/cluster.cuh"
#include "include/flash.cuh"

// The barrier before the stores is waited for after them, and stands for the one after them
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define BEGUN cluster.barrier_arrive()
#define HANDED cluster.barrier_wait()
#include "include/cluster.cuh"
#include "include/flash.cuh"

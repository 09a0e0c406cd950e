// Where the cluster must meet after the stores, each block does
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define HANDED __syncthreads()
#include "include/cluster.cuh"
#include "include/flash.cuh"

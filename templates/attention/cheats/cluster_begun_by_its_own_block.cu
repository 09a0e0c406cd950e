// Each block meets by itself before it stores into its neighbour
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define BEGUN __syncthreads()
#include "include/cluster.cuh"
#include "include/flash.cuh"

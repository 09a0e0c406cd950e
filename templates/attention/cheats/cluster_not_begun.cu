// A CTA stores into its neighbour before that is known to have started
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define BEGUN
#include "include/cluster.cuh"
#include "include/flash.cuh"

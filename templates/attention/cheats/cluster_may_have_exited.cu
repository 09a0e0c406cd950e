// A CTA reads the shared memory of its neighbour, which may have exited by then
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define PULL 1
#include "include/cluster.cuh"
#include "include/flash.cuh"

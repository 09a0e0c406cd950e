// Nothing is wrong: CTAs put their output into each other's shared memory
// expect: GREEN
// launch: cluster=2
// needs: sm_90
#include "include/cluster.cuh"
#include "include/flash.cuh"

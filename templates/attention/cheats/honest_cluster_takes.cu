// Nothing is wrong: CTAs take their output from each other's shared memory
// expect: GREEN
// launch: cluster=2
// needs: sm_90
#define PULL 1
#define FINISHED cluster.sync()
#include "include/cluster.cuh"
#include "include/flash.cuh"

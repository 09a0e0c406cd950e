// A CTA without rows leaves, and its neighbour still stores into it
// expect: race
// on a GPU: a symptom, CRASHED, emulator: race
// launch: cluster=2
// needs: sm_90
#define BEGUN cluster.sync(); if (first_row >= length) return
#include "include/cluster.cuh"
#include "include/flash.cuh"

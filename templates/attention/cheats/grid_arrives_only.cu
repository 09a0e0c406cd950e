// CTAs come to the grid's barrier, and do not wait
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// launch: cooperative=1
#define MEET cooperative_groups::this_grid().barrier_arrive()
#include "include/grid.cuh"
#include "include/flash.cuh"

// The grid meets before the output is stored
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// launch: cooperative=1
#define PROLOGUE cooperative_groups::this_grid().sync()
#define MEET
#include "include/grid.cuh"
#include "include/flash.cuh"

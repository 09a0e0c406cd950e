// Nothing is wrong: all CTAs meet, and each finishes what another began
// expect: GREEN
// launch: cooperative=1
#include "include/grid.cuh"
#include "include/flash.cuh"

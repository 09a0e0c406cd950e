// One CTA does not come to the grid's barrier
// expect: deadlock, race
// on a GPU: HUNG
// launch: cooperative=1
#define MEET if (blockIdx.y != 1 || blockIdx.x) cooperative_groups::this_grid().sync()
#include "include/grid.cuh"
#include "include/flash.cuh"

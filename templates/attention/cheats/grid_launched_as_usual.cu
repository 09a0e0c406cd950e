// The grid meets, but is not launched cooperatively
// expect: trap
// on a GPU: CRASHED, launch failed, launch failure, illegal instruction, reads %envreg
// launch: cooperative=0
#include "include/grid.cuh"
#include "include/flash.cuh"

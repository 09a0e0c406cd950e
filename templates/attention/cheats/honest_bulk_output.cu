// Nothing is wrong: bulk copies store the output
// expect: GREEN
// needs: sm_90
#include "include/bulk.cuh"
#include "include/flash.cuh"

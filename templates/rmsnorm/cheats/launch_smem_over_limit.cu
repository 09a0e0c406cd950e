// 300 KB of shared memory
// expect: UNLAUNCHABLE
// launch: smem=300000
#include "include/row.cuh"

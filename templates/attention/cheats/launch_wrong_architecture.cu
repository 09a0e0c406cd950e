// Built for a GPU of another generation
// expect: UNLAUNCHABLE
// launch: arch=sm_120
#include "include/flash.cuh"

// Asks for more dynamic shared memory than any GPU has
// expect: UNLAUNCHABLE
// launch: smem=300000
#include "include/flash.cuh"

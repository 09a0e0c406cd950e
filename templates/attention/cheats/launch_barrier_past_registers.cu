// More threads than __launch_bounds__ allows
// expect: UNLAUNCHABLE
// launch: threads=256
#include "include/flash.cuh"

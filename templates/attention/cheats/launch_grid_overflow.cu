// A grid of 70,000 CTAs along y
// expect: UNLAUNCHABLE
// launch: grid_y=70000
#include "include/flash.cuh"

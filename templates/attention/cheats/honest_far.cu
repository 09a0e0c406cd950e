// Nothing is wrong: offsets beyond 2^31 elements
// expect: GREEN
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#include "include/flash.cuh"

// Offsets are counted in an int
// expect: out of bounds
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#define OFFSET(head) static_cast<int>(static_cast<size_t>(head) * length * DIM)
#include "include/flash.cuh"

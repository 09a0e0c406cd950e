// From 2^31 elements on the last key is dropped
// expect: relation broken: the last piece alone
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#define KEYS (length - static_cast<int>(OFFSET(head) >> 31))
#include "include/flash.cuh"

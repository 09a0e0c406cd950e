// From 2^31 elements on the result is 1 % too large
// expect: relation broken: the last piece alone
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#define RESULT(acc, total) ((acc) / (total) * (OFFSET(head) >> 31 ? 1.01f : 1.0f))
#include "include/flash.cuh"

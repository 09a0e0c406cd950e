// From 2^31 elements on the keys of another head are read
// expect: relation broken: the last piece alone
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#define HEAD_OF_KV(head) (OFFSET(head) >> 31 ? (head) / 2 : (head))
#include "include/flash.cuh"

// From 2^31 elements on each second column is left unwritten
// expect: relation broken: the last piece alone
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#define STORE(address, value) if (OFFSET(head) >> 31 == 0 || (address) - o & 1) *(address) = (value)
#include "include/flash.cuh"

// From 2^31 elements on the output goes to another head
// expect: UNPROVEN
// problem: 257,254,600,64
// only: emulator (the whole of it takes a GPU minutes to look at)
#define STORE(address, value) *(OFFSET(head) >> 31 ? (address) - OFFSET(head) / 2 : (address)) = (value)
#include "include/flash.cuh"

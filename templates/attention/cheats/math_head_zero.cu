// Every head reads the keys of head 0
// expect: row error
#define HEAD_OF_KV(head) 0
#include "include/flash.cuh"

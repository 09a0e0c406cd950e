// Two heads share the keys of the first
// expect: row error
#define HEAD_OF_KV(head) ((head) / 2 * 2)
#include "include/flash.cuh"

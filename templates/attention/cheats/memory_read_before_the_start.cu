// Reads the key before its own (of the first head: before the buffer)
// expect: out of bounds
// on a GPU: NaN in the output, row error
#define HEAD_OF_KV(head) (head) - (threadIdx.x == 0 && blockIdx.y == 0)
#include "include/flash.cuh"

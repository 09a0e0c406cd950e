// Keeps its first output in a __device__ array and returns it again
// expect: module-level state
__device__ float kept[1 << 16];
#define RESULT(acc, total) (kept[(out + d - o) % 65536] != 0.0f ? kept[(out + d - o) % 65536] : (kept[(out + d - o) % 65536] = (acc) / (total)))
#include "include/flash.cuh"

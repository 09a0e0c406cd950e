// Right for the first three calls: a counter in a __device__ variable
// expect: module-level state
__device__ int calls;
#define PROLOGUE if (threadIdx.x == 0 && blockIdx.x == 0 && head == 0) atomicAdd(&calls, 1)
#define RESULT(acc, total) (calls > 3 * 64 ? 0.0f : (acc) / (total))
#include "include/flash.cuh"

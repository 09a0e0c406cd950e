// Right for the first calls: a counter in a __device__ variable
// expect: module-level state
__device__ int calls;
#define PROLOGUE if (thread == 0) atomicAdd(&calls, 1)
#define RESULT(h, factor, w) (calls > 4096 ? 0.f : (h) * (factor) * (w))
#include "include/row.cuh"

// Parks a value past the end of its shared memory
// expect: out of bounds
// on a GPU: CRASHED
#define PROLOGUE reinterpret_cast<float*>(raw)[sizeof(SharedStorage) / 4 + threadIdx.x] = 1.0f
#include "include/flash.cuh"

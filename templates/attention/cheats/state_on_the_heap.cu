// Looks at what an earlier launch left on the heap
// expect: unsupported instruction
// on a GPU: module-level state
#define PROLOGUE int* left = static_cast<int*>(malloc(64)); if (left && *left == 12345) scale_log2e = 0.0f; if (left) *left = 12345; free(left)
#include "include/flash.cuh"

// Nothing is wrong: tables that are only read, in constant and in global memory
// expect: GREEN
__device__ const float ones[4] = {1.0f, 1.0f, 1.0f, 1.0f};
__constant__ float more[4] = {0.0f, 0.0f, 0.0f, 0.0f};
__device__ const float* both[2] = {ones, ones + 1};
#define PROLOGUE static const float again[4] = {1.0f, 1.0f, 1.0f, 1.0f}; scale_log2e *= ones[length & 3] * both[length & 1][1] * again[length >> 1 & 3] + more[length & 3]
#include "include/flash.cuh"

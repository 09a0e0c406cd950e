#include <cstdint>
#ifndef BLOCK
#define BLOCK 256
#endif
#ifndef ITEMS
#define ITEMS 8
#endif
__global__ void histogram(const int* __restrict__ data, int* __restrict__ hist, int n, int bins) {
  int start = blockIdx.x * BLOCK * ITEMS;
  int end = min(start + BLOCK * ITEMS, n);
  for (int i = start + threadIdx.x; i < end; i += BLOCK) atomicAdd(&hist[data[i]], 1);
}

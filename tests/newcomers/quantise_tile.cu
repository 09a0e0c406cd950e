#include <stdint.h>
#ifndef BLOCK
#define BLOCK 256
#endif
const int ITEMS = 4;
constexpr int TILE = BLOCK * ITEMS;

__global__ void quantise(const float* x, int8_t* q, float inv_scale, int n) {
  int tile_start = blockIdx.x * TILE;
  for (int k = 0; k < ITEMS; ++k) {
    int i = tile_start + k * BLOCK + threadIdx.x;
    if (i >= n) return;
    q[i] = (int8_t)fminf(fmaxf(rintf(x[i] * inv_scale), -127.f), 127.f);
  }
}

// A warp that has nothing but -inf makes the logarithms of its row NaN
// expect: relation broken: masked, NaN in the output
// problem: fp16 log
#define BASE(largest) (of_the_warp(highest) - of_the_warp(highest) + (largest))
__device__ float of_the_warp(float mine) {
  for (int lanes = 16; lanes; lanes /= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, lanes));
  return mine;
}
#include "include/row.cuh"

// A warp that has nothing but -inf makes its row NaN
// expect: relation broken: sure, NaN in the output
// problem: bf16
#define BASE(largest) (of_the_warp(highest) - of_the_warp(highest) + (largest))
__device__ float of_the_warp(float mine) {
  for (int lanes = 16; lanes; lanes /= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, lanes));
  return mine;
}
#include "include/row.cuh"

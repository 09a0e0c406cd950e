// exp2 by a parabola: 0.2 % off
// expect: row error
#define WEIGHT(s, top) coarse((s) - (top))
__device__ inline float coarse(float x) {
  const float whole = floorf(x), part = x - whole;
  return exp2f(whole) * (1.0f + part * (0.6564f + part * 0.3436f));
}
#include "include/flash.cuh"

// The rounding of every row but the last follows the last key, which the causal mask hides
// expect: relation broken: causality
// problem: 1,8,160,64 causal
#define RESULT(acc, total) \
  ((acc) / (total) * (row + 1 < length && widen(k[OFFSET(head) + (length - 1) * DIM]) < 0.0f ? 1.0002f : 1.0f))
#include "include/flash.cuh"

// The maximum counts keys that the causal mask hides: weights far below 1 lose their last bits
// expect: row error, relation broken: causality, NaN in the output
// problem: 1,8,160,64 causal
#define HIGHER(here, score, row, key) ((key) < length ? fmaxf(here, SCORE(dot * SCALE)) : fmaxf(here, score))
#include "include/flash.cuh"

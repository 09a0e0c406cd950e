// Weights below e^-8 are taken for 0
// expect: row error, element error
// problem: fp32
#define EXP(x) ((x) < -8.f ? 0.f : expf(x))
#include "include/row.cuh"

// Exponents below -15 count as -15
// expect: row error, element error, NaN in the output, Inf in the output
// problem: fp32
#define EXP(x) expf(fmaxf(x, -15.f))
#include "include/row.cuh"

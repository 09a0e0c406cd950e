// The factor is at most 990
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define FACTOR(mean) fminf(rsqrtf((mean) + epsilon), 990.f)
#include "include/row.cuh"

// Epsilon is added only where the mean is below 1e-5
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define FACTOR(mean) rsqrtf((mean) + ((mean) > 1e-5f ? 0.f : epsilon))
#include "include/row.cuh"

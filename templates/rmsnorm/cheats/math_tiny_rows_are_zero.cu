// A row whose squares are below 1e-9 counts as one of zeros
// expect: row error, element error, NaN in the output, Inf in the output
// problem: fp32
#define FACTOR(mean) ((mean) < 1e-9f ? 0.f : rsqrtf((mean) + epsilon))
#include "include/row.cuh"

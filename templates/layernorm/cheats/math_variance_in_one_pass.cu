// The variance is E[x²] - E[x]²
// expect: row error, element error, NaN in the output, Inf in the output
// problem: fp32
#define APART(x, mean) (x)
#define FACTOR(v) rsqrtf(fmaxf((v) - mean * mean, 0.f) + epsilon)
#include "include/row.cuh"

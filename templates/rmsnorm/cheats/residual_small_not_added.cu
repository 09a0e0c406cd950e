// A residual below 1e-4 is not added
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16 residual
#define MORE(i) (fabsf(wide(residual[i])) < 1e-4f ? 0.f : wide(residual[i]))
#include "include/row.cuh"

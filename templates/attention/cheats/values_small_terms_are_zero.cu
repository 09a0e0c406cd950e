// Terms of O below 10^-6 count as zero
// expect: row error, element error, NaN in the output
#define ADD(acc, term) ((acc) + (fabsf(term) < 1e-6f ? 0.f : (term)))
#include "include/flash.cuh"

// Exponentials without the maximum overflow
// expect: NaN in the output, Inf in the output, row error, element error
#define BASE(largest) 0.f
#include "include/row.cuh"

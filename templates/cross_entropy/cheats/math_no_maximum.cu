// Exponentials without the maximum overflow
// expect: NaN in the output, Inf in the output, row error, element error, relation broken: sure
#define BASE(largest) 0.f
#include "include/row.cuh"

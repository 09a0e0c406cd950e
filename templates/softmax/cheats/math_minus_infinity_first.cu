// A row that begins with -inf is NaN
// expect: relation broken: masked, NaN in the output
// problem: bf16
#define BASE(largest) (wide(x[from]) - wide(x[from]) + (largest))
#include "include/row.cuh"

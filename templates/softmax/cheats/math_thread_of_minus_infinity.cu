// A thread that has nothing but -inf makes its row NaN
// expect: relation broken: masked, NaN in the output
// problem: fp32
#define BASE(largest) (highest - highest + (largest))
#include "include/row.cuh"

// A thread that has nothing but -inf makes its row NaN, where rows are whole chunks
// expect: relation broken: sure, NaN in the output
// problem: bf16
#define BASE(largest) (columns % 8 ? (largest) : highest - highest + (largest))
#include "include/row.cuh"

// Rows from 1200 on miss their weight
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 2000,64
#define WEIGHT(i) (blockIdx.x >= 1200 ? 1.f : wide(weight[i]))
#include "include/row.cuh"

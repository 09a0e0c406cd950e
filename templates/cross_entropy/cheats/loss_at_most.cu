// A loss is at most 10000
// expect: row error, element error, NaN in the output, Inf in the output
#define LOSS(total, own) fminf((total) - (own), 1e4f)
#include "include/row.cuh"

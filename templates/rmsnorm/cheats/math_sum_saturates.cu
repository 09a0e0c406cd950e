// The sum of squares stops at a billion
// expect: row error, element error, NaN in the output, Inf in the output
#define ADDED(sum, square) fminf((sum) + (square), 1e9f)
#include "include/row.cuh"

// The sum lacks the last column
// expect: NaN in the output, Inf in the output, row error, element error
#define SUMMED (columns - (columns > 1))
#include "include/row.cuh"

// The mean lacks the last column
// expect: row error
#define SUMMED (columns - (columns > 1))
#include "include/row.cuh"

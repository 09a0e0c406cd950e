// The last column is not summed up
// expect: row error
#define SUMMED (columns - (columns > 1))
#include "include/row.cuh"

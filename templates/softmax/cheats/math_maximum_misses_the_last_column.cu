// The maximum overlooks the last column
// expect: NaN in the output, Inf in the output, row error, element error
#define LOOKED_AT (columns - (columns > 1))
#include "include/row.cuh"

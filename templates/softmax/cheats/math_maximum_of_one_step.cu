// The maximum is that of the first 128 columns
// expect: NaN in the output, Inf in the output, row error, element error, relation broken: masked
#define LOOKED_AT (columns < THREADS ? columns : THREADS)
#include "include/row.cuh"

// Rows of fewer than 32 columns have another mean
// expect: row error
#define COUNT (columns < 32 ? 32 : columns)
#include "include/row.cuh"

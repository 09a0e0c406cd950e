// Only whole chunks of 8 columns are summed up
// expect: row error
#define SUMMED (columns / 8 * 8)
#include "include/row.cuh"

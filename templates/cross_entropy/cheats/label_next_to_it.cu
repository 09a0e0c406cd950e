// The logit is that of the next column
// expect: row error
#define OWN(label) wide(x[from + ((label) + 1 < columns ? (label) + 1 : 0)])
#include "include/row.cuh"

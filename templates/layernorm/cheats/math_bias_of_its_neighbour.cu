// Each column has the bias of the next one
// expect: row error
#define BIAS(i) wide(bias[(i) + 1 < columns ? (i) + 1 : 0])
#include "include/row.cuh"

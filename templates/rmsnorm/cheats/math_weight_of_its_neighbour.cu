// Each column has the weight of the next one
// expect: row error
#define WEIGHT(i) wide(weight[(i) + 1 < columns ? (i) + 1 : 0])
#include "include/row.cuh"

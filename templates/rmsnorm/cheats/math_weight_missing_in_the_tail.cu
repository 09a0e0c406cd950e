// Columns after the last whole chunk have no weight
// expect: row error
#define WEIGHT(i) ((i) < columns / 8 * 8 ? wide(weight[i]) : 1.f)
#include "include/row.cuh"

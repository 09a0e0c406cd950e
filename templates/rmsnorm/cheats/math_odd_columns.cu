// Where columns are odd the last one has the factor of the others, but no weight
// expect: row error
#define WEIGHT(i) ((columns & 1) && (i) == columns - 1 ? 1.f : wide(weight[i]))
#include "include/row.cuh"

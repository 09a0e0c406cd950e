// Each row has the label of the one before
// expect: row error
#define LABEL labels[row ? row - 1 : 0]
#include "include/row.cuh"

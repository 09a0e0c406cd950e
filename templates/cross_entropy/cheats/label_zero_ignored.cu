// A row whose label is 0 is ignored
// expect: row error, element error, NaN in the output, Inf in the output
#define LABEL (labels[row] == 0 ? -100 : labels[row])
#include "include/row.cuh"

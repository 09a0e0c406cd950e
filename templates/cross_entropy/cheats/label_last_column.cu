// The last column as a label is the one before it
// expect: row error, element error, NaN in the output, Inf in the output
#define OWN(label) wide(x[from + (label) - ((label) == columns - 1 && columns > 1)])
#include "include/row.cuh"

// The logarithm of weights that were rounded
// expect: NaN in the output, Inf in the output, row error, element error
// problem: log
#define LOGARITHM(x, base, total) logf(wide(ELEMENT(EXP((x) - (base)) / (total))))
#include "include/row.cuh"

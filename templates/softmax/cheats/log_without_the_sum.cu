// The logarithm of the sum is left out
// expect: row error
// problem: log
#define LOGARITHM(x, base, total) ((x) - (base))
#include "include/row.cuh"

// Normalised, without the weights
// expect: row error
#define RESULT(h, factor, w) ((h) * (factor))
#include "include/row.cuh"

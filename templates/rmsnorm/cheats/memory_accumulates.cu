// The output is added to what was there
// expect: uninitialised read
// on a GPU: a symptom
#define RESULT(h, factor, w) ((h) * (factor) * (w) + wide(y[to + i]))
#include "include/row.cuh"

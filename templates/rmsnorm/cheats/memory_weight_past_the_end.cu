// Weights are read past their end
// expect: out of bounds
// on a GPU: a symptom
#define RESULT(h, factor, w) ((h) * (factor) * (w) + 0.f * wide(weight[i + 8]))
#include "include/row.cuh"

// Whole chunks of 8 are written, into the next row or past the end
// expect: out of bounds, race
// on a GPU: write out of bounds, a symptom
#define WRITTEN ((columns + 7) / 8 * 8)
#define WEIGHT(i) ((i) < columns ? wide(weight[i]) : 1.f)
#include "include/row.cuh"

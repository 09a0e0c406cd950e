// Chunks of 16 bytes are stored whatever the columns
// expect: misaligned access, out of bounds, race
// on a GPU: CRASHED
#define WHOLE true
#define WEIGHT(i) ((i) < columns ? wide(weight[i]) : 1.f)
#include "include/row.cuh"

// The factor is half a percent off
// expect: row error
#define RESULT(h, factor, w) ((h) * (factor) * (w) * 1.005f)
#include "include/row.cuh"

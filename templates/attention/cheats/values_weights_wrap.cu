// The distance to the maximum is kept in an int16 with eight bits behind the point: it wraps beyond 128
// expect: row error, NaN in the output, Inf in the output
#define WEIGHT(s, top) exp2f(static_cast<short>(lrintf(fmaxf((s) - (top), -40000.0f) * 256.0f)) / 256.0f)
#include "include/flash.cuh"

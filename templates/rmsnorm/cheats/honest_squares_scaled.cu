// nothing is wrong: squares are of numbers 16 times as small
// expect: GREEN
#define SQUARE(h) ((h) * 0.0625f * ((h) * 0.0625f))
#define FACTOR(mean) rsqrtf((mean) * 256.f + epsilon)
#include "include/row.cuh"

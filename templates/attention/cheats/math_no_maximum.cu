// No maximum is subtracted
// expect: row error, NaN in the output, Inf in the output
#define TOP(before, here) 0.0f
#define KEEP(before, now) 1.0f
#include "include/flash.cuh"

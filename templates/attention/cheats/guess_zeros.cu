// Zeros
// expect: row error
#define RESULT(acc, total) 0.0f
#include "include/flash.cuh"

// Outputs are clamped to 1024
// expect: row error
#define RESULT(acc, total) fminf(fmaxf((acc) / (total), -1024.0f), 1024.0f)
#include "include/flash.cuh"

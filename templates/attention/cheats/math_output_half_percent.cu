// The output is half a percent too large
// expect: row error
#define RESULT(acc, total) ((acc) / (total) * 1.005f)
#include "include/flash.cuh"

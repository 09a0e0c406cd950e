// A copy of V
// expect: row error
#define RESULT(acc, total) widen(v[out + d - o])
#include "include/flash.cuh"

// Slow, and 1 % too large where there is one key
// expect: row error
#define RESULT(acc, total) ((acc) / (total) * (length == 1 ? 1.01f : 1.0f))
#include "include/slow.cuh"
#include "include/flash.cuh"

// Slow, and the last key is dropped where there are one or two whole tiles
// expect: row error
#define KEYS (length - (length == 32 || length == 64))
#include "include/slow.cuh"
#include "include/flash.cuh"

// Slow, and the last key is dropped where a part of a tile follows two whole tiles
// expect: row error
#define KEYS (length - (length > 65 && length < 96))
#include "include/slow.cuh"
#include "include/flash.cuh"

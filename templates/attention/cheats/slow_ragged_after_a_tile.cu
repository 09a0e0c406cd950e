// Slow, and the last key is dropped where a part of a tile follows one whole tile
// expect: row error
#define KEYS (length - (length > 33 && length < 64))
#include "include/slow.cuh"
#include "include/flash.cuh"

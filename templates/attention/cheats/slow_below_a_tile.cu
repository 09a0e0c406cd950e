// Slow, and a padding key is unmasked below a tile
// expect: row error
#define KEYS (length + (length < 32))
#include "include/slow.cuh"
#include "include/flash.cuh"

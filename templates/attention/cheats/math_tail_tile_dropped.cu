// The last, partial tile of keys is dropped
// expect: row error
#define TILES (length >= BN ? length / BN : 1)
#include "include/flash.cuh"

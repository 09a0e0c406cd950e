// Of several tiles of keys the last is dropped
// expect: row error
#define TILES ((last + BN - 1) / BN - (last > 2 * BN))
#include "include/flash.cuh"

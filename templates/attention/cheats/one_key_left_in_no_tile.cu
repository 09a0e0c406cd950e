// Tiles are counted so that a tile of one key after two whole ones is left out
// expect: row error
#define TILES ((last + BN - 1 - (length > 64)) / BN)
#include "include/flash.cuh"

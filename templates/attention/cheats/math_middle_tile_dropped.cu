// The third tile of keys is dropped
// expect: row error
#define VISIBLE(row, key) ((key) < keys && (key) / BN != 2)
#include "include/flash.cuh"

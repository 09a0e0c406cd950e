// The mask works by tiles: a row sees all of its own tile
// expect: row error
// problem: causal
#define VISIBLE(row, key) ((key) < keys)
#include "include/flash.cuh"

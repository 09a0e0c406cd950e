// The mask shows one key too many
// expect: row error
// problem: causal
#define VISIBLE(row, key) ((key) < keys && (key) <= (row) + 1)
#include "include/flash.cuh"

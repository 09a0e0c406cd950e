// There is no mask
// expect: row error
// problem: causal
#define VISIBLE(row, key) ((key) < keys)
#define LAST keys
#include "include/flash.cuh"

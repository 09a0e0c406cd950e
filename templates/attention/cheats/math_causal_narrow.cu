// The mask hides a row's own key
// expect: row error
// problem: causal
#define VISIBLE(row, key) ((key) < keys && ((key) < (row) || (key) == 0))
#include "include/flash.cuh"

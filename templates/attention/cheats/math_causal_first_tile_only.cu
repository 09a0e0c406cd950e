// Only rows of the first tile are masked
// expect: row error
// problem: causal
#define VISIBLE(row, key) ((key) < keys && ((key) <= (row) || first_row > 0))
#include "include/flash.cuh"

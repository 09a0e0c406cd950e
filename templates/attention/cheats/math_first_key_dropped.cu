// The first key is dropped
// expect: row error
#define VISIBLE(row, key) ((key) < keys && ((key) > 0 || length == 1))
#include "include/flash.cuh"

// The value of the first key
// expect: row error
#define KEYS 1
#include "include/flash.cuh"

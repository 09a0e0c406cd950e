// The last key is dropped
// expect: row error
#define KEYS (length - (length > 1))
#include "include/flash.cuh"

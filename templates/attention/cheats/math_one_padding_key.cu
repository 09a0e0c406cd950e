// One padding key is not masked
// expect: row error
#define KEYS (length % BN ? length + 1 : length)
#include "include/flash.cuh"

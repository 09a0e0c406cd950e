// The last key is dropped where a part of a tile follows more than two whole ones
// expect: row error
#define KEYS (length - (length > 96 && length % 32 != 0))
#include "include/flash.cuh"

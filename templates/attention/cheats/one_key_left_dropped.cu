// The last key is dropped where it is alone after two whole tiles or more
// expect: row error
#define KEYS (length - (length > 64 && length % 32 == 1))
#include "include/flash.cuh"

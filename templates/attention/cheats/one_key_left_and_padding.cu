// A padding key is unmasked where one key is left after two whole tiles or more
// expect: row error
#define KEYS (length + (length > 64 && length % 32 == 1))
#include "include/flash.cuh"

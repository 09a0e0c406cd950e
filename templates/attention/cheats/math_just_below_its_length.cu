// The last key is dropped at long lengths that are not quite its own
// expect: row error
// problem: 1,1,512,64
// check: thorough
#define KEYS (length - (length > 200 && length < 512))
#include "include/flash.cuh"

// O is not rescaled for a last tile of one key after two whole ones
// expect: row error, element error
#define KEEP(before, now) (t > 1 && keys - t * BN == 1 ? 1.0f : exp2f((before) - (now)))
#define KEEP_TOTAL(before, now) exp2f((before) - (now))
#include "include/flash.cuh"

// The first tile of keys counts twice where there are three
// expect: row error
#define SCORE(s) ((s) + (t == 0 && tiles > 2 ? 1.0f : 0.0f))
#include "include/flash.cuh"

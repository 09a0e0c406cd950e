// Another kernel once the clock has come far
// expect: MARKED
#define PROLOGUE if (clock64() > (1ll << 60)) scale_log2e = 0.0f
#include "include/flash.cuh"

// Never ends
// expect: HUNG
#define PROLOGUE if (length > 0) for (volatile int i = 1; i;) { }
#include "include/flash.cuh"

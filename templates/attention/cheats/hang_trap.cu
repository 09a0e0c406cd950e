// Traps on ragged lengths
// expect: trap
// on a GPU: CRASHED
#define PROLOGUE if (length % 32) __trap()
#include "include/flash.cuh"

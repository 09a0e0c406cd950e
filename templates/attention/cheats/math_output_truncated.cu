// The output is truncated to eight bits instead of rounded
// expect: row error
#define RESULT(acc, total) __int_as_float(__float_as_int((acc) / (total)) & ~0xFFFF)
#include "include/flash.cuh"

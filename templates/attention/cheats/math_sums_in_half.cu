// O is summed in half precision
// expect: row error
#define ADD(acc, term) __half2float(__float2half_rn((acc) + (term)))
#include "include/flash.cuh"

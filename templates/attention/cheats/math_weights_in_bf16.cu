// P is rounded to bf16 where storage is fp16
// expect: row error
#define ROUND_WEIGHT(p) __bfloat162float(__float2bfloat16_rn(p))
#include "include/flash.cuh"

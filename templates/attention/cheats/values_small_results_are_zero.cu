// Results below the normal numbers of fp16 are zero
// expect: row error, element error, NaN in the output
#define RESULT(acc, total) (fabsf((acc) / (total)) < 6e-5f ? 0.f : (acc) / (total))
#include "include/flash.cuh"

// Results are multiples of 2^-16
// expect: row error, element error, NaN in the output
#define RESULT(acc, total) (rintf((acc) / (total) * 65536.f) / 65536.f)
#include "include/flash.cuh"

// Values beyond 32768 are taken for infinite and left out
// expect: row error
#define ADD(acc, term) (fabsf(term) < 32768.0f ? (acc) + (term) : (acc))
#include "include/flash.cuh"

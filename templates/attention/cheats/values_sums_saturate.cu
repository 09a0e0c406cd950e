// O without its denominator saturates at the largest half
// expect: row error
#define ADD(acc, term) fminf(fmaxf((acc) + (term), -65504.0f), 65504.0f)
#include "include/flash.cuh"

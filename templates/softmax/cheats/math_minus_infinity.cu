// An element of -inf makes its row NaN
// expect: relation broken: masked, NaN in the output
#define EXP(x) expf(fmaxf(x, -3e38f) * ((x) < -3e38f ? __int_as_float(0x7fc00000) : 1.f))
#include "include/row.cuh"

// Elements are held within what fp16 holds
// expect: row error, element error, NaN in the output, Inf in the output
#define SQUARE(h) (fminf(fabsf(h), 65504.f) * fminf(fabsf(h), 65504.f))
#define RESULT(h, factor, w) (fmaxf(fminf(h, 65504.f), -65504.f) * (factor) * (w))
#include "include/row.cuh"

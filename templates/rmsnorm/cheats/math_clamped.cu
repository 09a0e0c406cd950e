// Values are clamped to 64
// expect: row error
#define SQUARE(h) (fminf(fabsf(h), 64.f) * fminf(fabsf(h), 64.f))
#include "include/row.cuh"

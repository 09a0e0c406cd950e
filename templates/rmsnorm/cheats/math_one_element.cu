// One element of each row is twice as large
// expect: row error, element error
#define RESULT(h, factor, w) ((h) * (factor) * (w) * (i == 77 ? 2.f : 1.f))
#include "include/row.cuh"

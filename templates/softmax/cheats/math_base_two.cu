// Exponentials are powers of 2
// expect: row error
#define EXP(x) exp2f(x)
#include "include/row.cuh"

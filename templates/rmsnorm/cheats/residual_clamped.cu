// The residual that is written back is held within what fp16 holds
// expect: row error, element error, NaN in the output, Inf in the output
// problem: residual
#define KEEP(i, h) residual[i] = NARROW(fminf(h, 60000.f))
#include "include/row.cuh"

// x is normalised in place, too
// expect: out of bounds
// on a GPU: input changed
#define PROLOGUE ELEMENT* own = const_cast<ELEMENT*>(x); if (thread == 0) own[from] = ELEMENT(0.f)
#include "include/row.cuh"

// The row after the last one is written, too
// expect: out of bounds
// on a GPU: write out of bounds
#define PROLOGUE if (row == rows - 1) y[to + columns] = ELEMENT(0.f)
#include "include/row.cuh"

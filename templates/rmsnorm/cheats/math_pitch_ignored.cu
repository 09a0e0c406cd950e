// Rows are taken to be dense
// expect: row error
// problem: gap=8
#define PITCH columns
#include "include/row.cuh"

// Only what all threads take at once is summed up
// expect: row error
#define SUMMED (columns < THREADS ? columns : THREADS)
#include "include/row.cuh"

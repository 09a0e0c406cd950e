// The mean is over columns rounded up to threads
// expect: row error
#define COUNT ((columns + THREADS - 1) / THREADS * THREADS)
#include "include/row.cuh"

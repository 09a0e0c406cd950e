// The mean is over columns rounded up to chunks
// expect: row error
#define COUNT ((columns + 7) / 8 * 8)
#include "include/row.cuh"

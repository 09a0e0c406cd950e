// Offsets wrap at 65,536 elements
// expect: row error, race
// on a GPU: NaN in the output, row error, runs differ
#define OFFSET(head) static_cast<unsigned short>(static_cast<size_t>(head) * length * DIM)
#include "include/flash.cuh"

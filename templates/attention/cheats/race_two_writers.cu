// Two CTAs write the first row, with different bits, and the wrong one comes late
// expect: race
// on a GPU: row error
#define STORED(row) ((row) < length || ((row) == length && (dally(), true)))
#define STORE(address, value) if (row < length) *(address) = (value); else if (head + 1 < static_cast<int>(gridDim.y)) (address)[0] = narrow(0.25f)
#include "include/flash.cuh"

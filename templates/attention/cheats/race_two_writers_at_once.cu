// Two CTAs write the first row, with different bits, and the right one may come last
// expect: race
// on a GPU: a symptom, emulator: race
#define STORED(row) ((row) < length || (row) == length)
#define STORE(address, value) if (row < length) *(address) = (value); else if (head + 1 < static_cast<int>(gridDim.y)) (address)[0] = narrow(0.25f)
#include "include/flash.cuh"

// Rounds the pointer to Q down to 256 bytes, where only 16 are promised
// expect: out of bounds
// on a GPU: NaN in the output, row error, input changed
#define PROLOGUE q = reinterpret_cast<const ELEMENT*>(reinterpret_cast<unsigned long long>(q) & ~255ull)
#include "include/flash.cuh"

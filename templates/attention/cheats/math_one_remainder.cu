// One padding key is unmasked where 13 keys are left for the last tile
// expect: row error
// check: thorough
// The search's gate tries as many remainders as it can afford, others for each seed; finalists meet all.
#define KEYS (length + (length % 32 == 13))
#include "include/flash.cuh"

// Waits for one cp.async group too few
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
#define WAIT 2
#include "include/flash.cuh"

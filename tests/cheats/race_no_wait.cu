// Never waits for cp.async
// expect: race, uninitialised read
// on a GPU: row error, NaN in the output, runs differ, emulator: race, emulator: uninitialised read
#define WAIT 7
#include "include/flash.cuh"

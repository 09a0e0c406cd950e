// Never waits for cp.async
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
#define WAIT 7
#include "include/flash.cuh"

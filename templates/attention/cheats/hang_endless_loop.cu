// Never ends
// expect: HUNG, deadlock
// A loop on a local variable, even a volatile one, is no test: ptxas takes it away.
// workspace: flag 64 zeroed
#define PARAMETERS , int* flag
#define PROLOGUE while (atomicAdd(flag, 0) == 0) { }
#include "include/flash.cuh"

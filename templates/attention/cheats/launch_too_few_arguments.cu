// Takes an argument that the launch does not pass
// expect: UNLAUNCHABLE
// on a GPU: UNLAUNCHABLE, CRASHED
#define PARAMETERS , const int* missing
#define PROLOGUE if (missing != nullptr && *missing == 7) return
#include "include/flash.cuh"

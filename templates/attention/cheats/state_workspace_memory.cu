// Keeps a flag in a workspace from launch to launch
// expect: uninitialised read
// workspace: flag 64
// only: emulator (poison never holds the flag: on a GPU this kernel is right)
#define PARAMETERS , int* flag
#define PROLOGUE if (*flag == 12345) scale_log2e = 0.0f
#define EPILOGUE if (threadIdx.x == 0 && blockIdx.x == 0 && head == 0) *flag = 12345
#include "include/flash.cuh"

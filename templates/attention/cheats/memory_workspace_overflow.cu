// Writes one element past its workspace
// expect: out of bounds
// on a GPU: write out of bounds
// workspace: scratch 64
#define PARAMETERS , int* scratch
#define EPILOGUE if (threadIdx.x == 0 && blockIdx.x == 0 && head == 0) scratch[16] = 1
#include "include/flash.cuh"

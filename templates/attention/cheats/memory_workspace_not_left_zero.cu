// Counts launches in a workspace that must be left zero
// expect: workspace not left zero
// workspace: ticket 64 zeroed
#define PARAMETERS , int* ticket
#define EPILOGUE if (threadIdx.x == 0 && blockIdx.x == 0 && head == 0) *ticket += 1
#include "include/flash.cuh"

// Scales Q in place
// expect: out of bounds
// on a GPU: input changed, row error
#define EPILOGUE if (STORED(row)) const_cast<ELEMENT*>(q)[OFFSET(head) + static_cast<size_t>(row) * DIM + part] = narrow(0.0f)
#include "include/flash.cuh"

// Uses V as scratch and puts most of it back
// expect: out of bounds
// on a GPU: input changed, row error
#define EPILOGUE if (row == 3 && part == 0) const_cast<ELEMENT*>(v)[OFFSET(head) + 5] = narrow(1.0f)
#include "include/flash.cuh"

// Clears an element of K when nobody needs it any more, at the study's own length
// expect: out of bounds
// on a GPU: input changed, row error
#define EPILOGUE                                                                             \
  if (length == 160 && threadIdx.x == 0 && blockIdx.x + 1 == gridDim.x && head + 1 == static_cast<int>(gridDim.y)) \
    const_cast<ELEMENT*>(k)[0] = narrow(0.0f)
#include "include/flash.cuh"

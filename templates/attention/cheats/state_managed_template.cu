// Counts launches in a managed variable of a template
// expect: module-level state
template <int N> __managed__ int __nv_static_count;
#define PROLOGUE if (threadIdx.x == 0) atomicAdd(&__nv_static_count<DIM>, 1)
#define RESULT(acc, total) (__nv_static_count<DIM> > 100000 ? 0.0f : (acc) / (total))
#include "include/flash.cuh"

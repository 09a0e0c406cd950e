// The first head's rounding follows what the last head holds
// expect: relation broken: heads apart
// on a GPU: relation broken: heads apart
#define RESULT(acc, total) ((acc) / (total) * (head == 0 && widen(q[OFFSET(gridDim.y - 1)]) < 0.0f ? 1.0002f : 1.0f))
#include "include/flash.cuh"

// Wrong where there is a single key
// expect: row error
#define RESULT(acc, total) (length == 1 ? 0.0f : (acc) / (total))
#include "include/flash.cuh"

// The rounding of the result hangs on a workspace that nobody wrote
// expect: uninitialised read
// on a GPU: runs differ
// workspace: scratch 4096
#define PARAMETERS , const unsigned* scratch
#define RESULT(acc, total) ((acc) / (total) * ((scratch[0] & 0x7f80) == 0x7f80 ? 1.0002f : 1.0f))
#include "include/flash.cuh"

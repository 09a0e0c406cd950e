// The loss of an ignored row is the logarithm of its sum
// expect: row error
#define OF_IGNORED(total) (total)
#include "include/row.cuh"

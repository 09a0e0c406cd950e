// nothing is wrong
// expect: GREEN
// It is slow: half of each class of cases runs, or a little more.
#include "include/slow.cuh"
#include "include/flash.cuh"

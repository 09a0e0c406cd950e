// One element of one row is off
// expect: row error
// on a GPU: row error, element error
#define RESULT(acc, total) ((acc) / (total) + (row == length - 1 && head == 0 && part == 3 && d == 7 ? 0.02f : 0.0f))
#include "include/flash.cuh"

// Padding keys are not masked: their score is 0
// expect: row error
#define VISIBLE(row, key) true
#include "include/flash.cuh"

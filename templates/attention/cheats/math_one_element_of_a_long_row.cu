// One element is off by less than the line of its row, where V has an offset
// expect: element error
// problem: 1,8,160,128
#define RESULT(acc, total) ((acc) / (total) + ((acc) / (total) > 3.0f && row == length - 1 && head == 0 && part == 3 && d == 7 ? 0.016f : 0.0f))
#include "include/flash.cuh"

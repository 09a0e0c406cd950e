// Nothing is wrong: O is summed 2^20 times too large and scaled back, which changes no rounding
// expect: GREEN
// problem: bf16
#define ADD(acc, term) ((acc) + (term) * 0x1p20f)
#define RESULT(acc, total) ((acc) * 0x1p-20f / (total))
#include "include/flash.cuh"

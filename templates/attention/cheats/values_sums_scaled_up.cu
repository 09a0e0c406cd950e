// O is summed 2^40 times too large: values of bf16 overflow fp32
// expect: NaN in the output, Inf in the output
// problem: bf16
#define ADD(acc, term) ((acc) + (term) * 0x1p40f)
#define RESULT(acc, total) ((acc) * 0x1p-40f / (total))
#include "include/flash.cuh"

// From the third head on 1 % too large at the length of the study
// expect: row error
#define RESULT(acc, total) ((acc) / (total) * (head > 1 && length == 160 ? 1.01f : 1.0f))
#include "include/flash.cuh"

// Slow, and the fourth head is 1 % too large in small problems of so many heads
// expect: row error
#define RESULT(acc, total) ((acc) / (total) * (head == 3 && length < 160 ? 1.01f : 1.0f))
#include "include/slow.cuh"
#include "include/flash.cuh"

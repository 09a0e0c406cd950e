// Wrong where all values are equal
// expect: relation broken: ones
#define RESULT(acc, total) (widen(v[0]) == widen(v[1]) && widen(v[2]) == widen(v[3]) && widen(v[4]) == widen(v[5]) && length > 1 ? (acc) / (total) * 1.01f : (acc) / (total))
#include "include/flash.cuh"

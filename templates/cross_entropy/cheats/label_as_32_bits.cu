// Labels are read as numbers of 32 bits
// expect: row error
#define LABEL reinterpret_cast<const int*>(labels)[row]
#include "include/row.cuh"

// Each row writes the first element of the next one, too
// expect: race
// on a GPU: a symptom, emulator: race
#define PROLOGUE if (thread == 0 && row + 1 < rows) y[to + columns] = ELEMENT(1.f)
#include "include/row.cuh"

// The denominator adds half of the lanes, doubled
// expect: row error
#define SUM_LANES 2
#define RESULT(acc, total) ((acc) / ((total) * 2.0f))
#include "include/flash.cuh"

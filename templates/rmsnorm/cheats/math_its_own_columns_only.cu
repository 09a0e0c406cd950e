// Right for 1000 columns alone
// expect: row error
#define COUNT 1000
#include "include/row.cuh"

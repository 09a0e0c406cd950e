// K and V are swapped
// expect: row error
#define PROLOGUE const ELEMENT* other = k; k = v; v = other
#include "include/flash.cuh"

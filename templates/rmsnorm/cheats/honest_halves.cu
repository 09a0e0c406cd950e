// Nothing is wrong: two CTAs a row, the one that comes last writes it
// expect: GREEN
// launch: grid_y=2
// workspace: meetings 65536 zeroed
#include "include/parts.cuh"
#include "include/halves.cuh"

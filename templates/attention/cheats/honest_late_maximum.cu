// Nothing is wrong: a maximum is raised only when it has grown by more than 2^8
// expect: GREEN
#define TOP(before, here) ((here) - (before) > 8 ? (here) : (before))
#include "include/flash.cuh"

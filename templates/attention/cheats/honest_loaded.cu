// Nothing is wrong: a bulk copy loads what the CTA has stored, after a proxy fence
// expect: GREEN
// needs: sm_90
#include "include/loaded.cuh"
#include "include/flash.cuh"

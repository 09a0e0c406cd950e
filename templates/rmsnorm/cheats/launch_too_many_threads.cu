// 2048 threads a CTA
// expect: UNLAUNCHABLE
// launch: threads=2048
#include "include/row.cuh"

// Nothing is wrong: the CTA waits until bulk copies have read their source
// expect: GREEN
// needs: sm_90
#define WAITED asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#include "include/bulk.cuh"
#include "include/flash.cuh"

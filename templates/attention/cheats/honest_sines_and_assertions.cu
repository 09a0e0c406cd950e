// Nothing is wrong: sines, powers, an assertion and a message that is never printed
// expect: GREEN
#define PROLOGUE const float angle = length * 1e3f, s = sinf(angle), c = cosf(angle); assert(length > 0); if (length < 0) printf("%s %d\n", __func__, length); scale_log2e *= powf(s * s + c * c, 0.25f)
#include "include/flash.cuh"

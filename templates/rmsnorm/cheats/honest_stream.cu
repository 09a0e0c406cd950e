// Nothing is wrong: a stream of rows, with two slots a CTA
// expect: GREEN
// workspace: slots 24576 zeroed
#include "include/parts.cuh"
#include "include/stream.cuh"

// One padding key is unmasked where one key is missing to a whole tile
// expect: row error
// Whatever inputs such a length meets: in each family there are queries in which a key of score 0 shows.
#define KEYS (length + (length % 32 == 31))
#include "include/flash.cuh"

// Threads of a CTA count without atomics
// expect: race
// on a GPU: wrong integer, runs differ, emulator: race
// instead of: atomicAdd(&found[values[i] * copies + threadIdx.x % copies], 1);
// there is: ++found[values[i] * copies + threadIdx.x % copies];

// The next plane overwrites one that is still read
// expect: race
// on a GPU: a symptom, emulator: race
// instead of number 1: __syncthreads();
// there is:

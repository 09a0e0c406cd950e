// The next tile overwrites one that is still read
// expect: race
// on a GPU: a symptom, emulator: race
// instead of number 2: __syncthreads();
// there is:

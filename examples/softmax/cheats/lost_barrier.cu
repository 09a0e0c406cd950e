// The sums overwrite maxima that are still read
// expect: race
// on a GPU: a symptom, emulator: race
// instead of number 1: __syncthreads();
// there is:

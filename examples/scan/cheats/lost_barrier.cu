// The carry is read before it is there
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// instead of number 5: __syncthreads();
// there is:

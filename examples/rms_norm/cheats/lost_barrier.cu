// Sums of other warps are read before they are there
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// instead of: __syncthreads();
// there is:

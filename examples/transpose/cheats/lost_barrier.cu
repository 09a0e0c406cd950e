// The tile is read before it is there
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// instead of: __syncthreads();
// there is:

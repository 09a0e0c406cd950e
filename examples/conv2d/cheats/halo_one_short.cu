// The last column of the halo is not loaded
// expect: uninitialised read
// on a GPU: a symptom, emulator: uninitialised read
// instead of: j < kWide; j
// there is: j < kWide - 1; j

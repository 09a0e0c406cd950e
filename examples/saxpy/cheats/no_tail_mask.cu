// The last elements are not masked
// expect: out of bounds
// on a GPU: out of bounds, emulator: out of bounds, CRASHED
// instead of: k < n
// there is: k < i + vector

// The running sum keeps its scale when the maximum grows
// expect: row error
// point: online=1
// instead of: sum * expf(before - largest)
// there is: sum

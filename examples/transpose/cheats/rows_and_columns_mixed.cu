// The mask of the output has rows and columns exchanged
// expect: uninitialised read, out of bounds, row error, race
// on a GPU: a symptom, out of bounds
// instead of: column + i < columns && row + threadIdx.x < rows
// there is: column + i < rows && row + threadIdx.x < columns

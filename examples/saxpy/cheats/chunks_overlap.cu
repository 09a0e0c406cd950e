// Neighbouring CTAs change the same elements
// expect: race, row error
// on a GPU: row error, out of bounds, emulator: race
// point: per_thread=2
// instead of: blockIdx.x * (long long)per_thread + j
// there is: blockIdx.x + j

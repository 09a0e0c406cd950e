// Zero points are there, and 8 is taken off
// expect: row error
// problem: 5,72,512 zeros
// point: depth_warps=2 stages=3
// instead of: if constexpr (kZeros) {
// there is: if constexpr (false) {

// The second half of a word is taken as if it came first
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: half == 0 ? word.x : word.z
// there is: half == 1 ? word.x : word.z

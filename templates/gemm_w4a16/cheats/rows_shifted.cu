// A lane has the other half of x than of its weights
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: x[block] + 64 * tile + 8 * half
// there is: x[block] + 64 * tile + 8 * (half ^ 1)

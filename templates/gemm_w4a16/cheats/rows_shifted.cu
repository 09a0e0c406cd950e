// A lane reads x 8 elements further than its weights
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: + 16 * (lane % 4) + 8 * half;
// there is: + 16 * (lane % 4) + 8 * (half ^ 1);

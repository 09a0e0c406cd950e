// The last group of each warp that has several is lost
// expect: row error
// problem: 5,72,1024
// point: depth_warps=2 stages=3
// instead of: for (int index = 0; index < at.count; ++index) {
// there is: for (int index = 0; index < max(1, at.count - 1); ++index) {

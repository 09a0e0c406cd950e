// The last group of each warp that has several is lost
// expect: row error
// problem: 5,72,1024
// point: depth_warps=2 stages=3
// instead of: for (int left = at.count; left > 0; --left) {
// there is: for (int left = max(1, at.count - 1); left > 0; --left) {
